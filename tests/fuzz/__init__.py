"""Random calls of every route against the documented answers: ``make fuzz``."""
