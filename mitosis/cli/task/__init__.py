"""`mitosis task …`: single tasks."""
