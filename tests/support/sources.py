"""Source files of the repository, parsed once for all tests that read them."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file with the collector off.

    CPython 3.11 may fail with SystemError when garbage is collected at the same time (python/cpython#106905).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        if was_on:
            gc.enable()
