"""`mitosis user …`."""
