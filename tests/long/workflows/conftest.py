"""The control worker of a test is in its process: tests use sessions of PostgreSQL one after the other."""

from tests.support.warm_sessions import database

__all__ = ["database"]
