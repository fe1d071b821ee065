"""`mitosis worker …`: the worker services."""
