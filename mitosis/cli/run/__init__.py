"""`mitosis run`: runs a command over many inputs, as xargs does, on hosts that hooks prepare and clean."""
