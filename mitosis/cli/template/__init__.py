"""The commands about templates of task groups."""
