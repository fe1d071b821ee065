"""`mitosis token …`."""
