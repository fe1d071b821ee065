"""Following a task group to its end, as `mitosis run` and `mitosis watch` do."""
