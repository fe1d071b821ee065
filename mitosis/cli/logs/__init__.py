"""`mitosis logs`: the output of tasks and hooks, as kept or live."""
