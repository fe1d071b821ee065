"""Tests of a module share one stack, unless they make their own."""

from tests.support.stack_fixtures import env, stack

__all__ = ["env", "stack"]
