"""Unit tests run pure code: no process, no socket, no sleep."""

from tests.support.pure_code import only_pure_code

__all__ = ["only_pure_code"]
