"""Source files of the repository, parsed once for all tests that read them."""

import ast
import gc
from functools import cache
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """Parse a file."""
    return parsed_text(path.read_text())


@cache
def parsed_text(text: str) -> ast.Module:
    """Parse a text with the collector off.

    CPython 3.11 may fail with SystemError when garbage is collected at the same time (python/cpython#106905).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_on:
            gc.enable()
