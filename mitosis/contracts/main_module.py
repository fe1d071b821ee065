"""The name under which workers import the script of this program. Standard library only."""

import sys
from dataclasses import dataclass
from pathlib import Path

from mitosis.contracts.errors import InvalidRequest

MAIN = "__main__"


@dataclass(frozen=True, slots=True)
class Importable:
    """How a worker imports a module."""

    module: str
    folder: str | None
    """Must be on the search path of the workers; None = it is there already."""


def main_module(function: str) -> Importable:
    """Return the module that this program's script is for workers.

    Args:
        function: the name of a function in it, for errors.

    Raises:
        InvalidRequest: workers cannot import it; says what to do.
    """
    main = sys.modules[MAIN]
    file = getattr(main, "__file__", None)
    if file is None:
        raise InvalidRequest(
            f"{function} is defined in a notebook or at a prompt, which workers cannot import; "
            f"write it into a file beside it, such as work.py (%%writefile work.py), and then: "
            f"from work import {function}",
            field="function",
        )
    if main.__spec__ is not None:  # python -m package.module
        return Importable(main.__spec__.name, None)
    path = Path(file).resolve()
    if not path.stem.isidentifier() or path.suffix != ".py":
        raise InvalidRequest(
            f"{function} is defined in {path.name}, which cannot be imported as a module; "
            f"give the file a name as in my_sweep.py",
            field="function",
        )
    return Importable(path.stem, str(path.parent))
