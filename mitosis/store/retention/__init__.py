"""What is kept for how long (C-34), and its deletion in small chunks."""
