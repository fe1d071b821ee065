"""The API and control processes that run now, with their versions."""
