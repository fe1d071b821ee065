"""The program that uses the SDK: its import path, and how workers import its script.

Like a spawned process of ``multiprocessing``, a worker gets the folders of ``sys.path`` and imports the
script as a module, so ``if __name__ == "__main__":`` must guard what the script *does*. This module checks
that the running line of the script is inside that block.
"""

import ast
import os
import site
import sys
import sysconfig
from pathlib import Path
from types import FrameType, ModuleType

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.main_module import MAIN, Importable, main_module

GUARD = 'if __name__ == "__main__":'


def search_path() -> tuple[str, ...]:
    """Return the absolute folders from which this program imports, without those of the interpreter."""
    own = [os.path.realpath(folder) for folder in _interpreter_folders()]
    found = [os.path.abspath(entry or os.getcwd()) for entry in sys.path]  # noqa: PTH100, PTH109
    kept = [
        entry
        for entry in found
        if os.path.isdir(entry)  # noqa: PTH112 - zip files and dead entries are of no use elsewhere
        and not any(_inside(os.path.realpath(entry), folder) for folder in own)
    ]
    return tuple(dict.fromkeys(kept))


def _interpreter_folders() -> set[str]:
    paths = sysconfig.get_paths()
    named = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return named | {*site.getsitepackages(), site.getusersitepackages()}


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def main_as_module(function: str) -> Importable:
    """Return the module name under which workers import this program's script.

    Args:
        function: the name of the function, for errors.

    Raises:
        InvalidRequest: workers cannot import it, or would run the script again; says what to do.
    """
    found = main_module(function)
    _check_guard(sys.modules[MAIN], function)
    return found


def _check_guard(main: ModuleType, function: str) -> None:
    path = Path(str(main.__file__)).resolve()
    try:
        guarded = _guarded_lines(ast.parse(path.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return  # not the source of the running code, so it cannot be checked
    line = _running_line(main)
    if any(line is None or line in lines for lines in guarded):
        return
    raise InvalidRequest(
        f"workers import {path.name} to find {function}, and would run all of it again; "
        f"put what the script does under: {GUARD}",
        field="function",
    )


def _guarded_lines(tree: ast.Module) -> list[range]:
    return [
        range(node.lineno, (node.body[-1].end_lineno or node.lineno) + 1)
        for node in tree.body
        if isinstance(node, ast.If) and _asks_for_main(node.test)
    ]


def _asks_for_main(test: ast.expr) -> bool:
    found = ast.dump(test)
    return "'__name__'" in found and "'__main__'" in found


def _running_line(main: ModuleType) -> int | None:
    """Return the line of the script that is being executed; None in another thread."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the one way to look at one's callers
    while frame is not None:
        if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None
