"""Tests of the store start no process: they use sessions of PostgreSQL one after the other."""

from tests.support.warm_sessions import database

__all__ = ["database"]
