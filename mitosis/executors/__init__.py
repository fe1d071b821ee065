"""Executors: code that carries out one kind of named task in a worker service; see ``contract.py``."""
