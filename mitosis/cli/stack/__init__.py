"""The programs of Mitosis started from the command line: the whole stack, or its parts."""
