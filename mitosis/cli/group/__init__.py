"""`mitosis group …`: task groups."""
