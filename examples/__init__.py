"""Examples that run, here and in ``mitosis demo``."""
