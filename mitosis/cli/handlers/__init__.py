"""`mitosis handlers …`: the named tasks that worker services support."""
