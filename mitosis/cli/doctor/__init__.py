"""`mitosis doctor`: checks this host and the servers."""
