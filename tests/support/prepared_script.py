"""What `python SCRIPT WORD…` and `python -c CODE WORD…` do, in a prepared program."""

import os
import sys
from pathlib import Path
from types import ModuleType


def main(first: str, *words: str) -> None:
    module = ModuleType("__main__")
    if first == "-c":
        code, *words_of_it = words
        name, folder, sys.argv = "<string>", "", ["-c", *words_of_it]
    else:
        name, folder = str(Path(first).absolute()), str(Path(first).resolve().parent)
        code, sys.argv = Path(first).read_text(), [first, *words]
        module.__file__ = name
    given = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [folder, *filter(None, given.split(os.pathsep))]
    sys.modules["__main__"] = module
    exec(compile(code, name, "exec", dont_inherit=True), vars(module))  # noqa: S102 - its own code


if __name__ == "__main__":
    main(*sys.argv[1:])
