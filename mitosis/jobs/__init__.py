"""Definitions of jobs: what their steps run, in which order, and what a run of them comes to.

Pure: nothing here speaks to a server, and only ``loading`` reads a file. The store, the API, the client
and the commands all use the same models and rules.
"""
