"""A fleet over the real store whose rounds are judged by plain rules: see ``machine.py``."""
