"""`mitosis doctor`: checks of this host and of the servers."""
