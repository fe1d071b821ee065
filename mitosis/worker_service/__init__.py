"""The process of a worker service: registers, claims named tasks, executes them in slots, reports (P10)."""
