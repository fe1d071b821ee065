"""`mitosis run`: a command over many inputs, as handy as xargs, on hosts that are prepared and cleaned."""
