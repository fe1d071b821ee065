"""Documents as things to do: the lines a page asks to type, what it shows as answer, the files it shows.

A ``console`` block holds lines after ``$``, each followed by what it shows. ``…`` stands for anything inside
a line, and as a line of its own for any lines. A block of another language whose first line is a comment with
a file name is that file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^(?:#|//|--) (?P<name>[\w./-]+\.\w+)$")
ANY = "…"
TYPED = (
    "from-airflow.md",
    "from-celery.md",
    "from-make.md",
    "from-slurm.md",
    "from-xargs.md",
    "hooks.md",
    "jobs.md",
    "pins.md",
    "troubleshooting.md",
    "when-things-die.md",
)
"""Pages of ``docs`` of which every line is typed by a test, from the first to the last."""


@dataclass(frozen=True, slots=True)
class Typed:
    """One line to type, and the lines that are shown as its answer (none: nothing is promised)."""

    line: str
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader is asked to write."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """Python without a file name: to be run as it is."""

    text: str


Step = Typed | File | Program


def steps(page: str) -> list[Step]:
    """Everything that a page asks for, in its order."""
    return [step for match in _BLOCK.finditer(page) for step in _steps_of(match)]


def _steps_of(match: re.Match[str]) -> Iterator[Step]:
    text = match["text"]
    if match["language"] == "console":
        yield from _typed(text)
        return
    first = text.partition("\n")[0]
    if named := _FILE.match(first):
        yield File(named["name"], text)
    elif match["language"] == "python":
        yield Program(text)


def _typed(text: str) -> Iterator[Typed]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.rstrip("\n").split("\n")
        line = lines.pop(0)
        while line.endswith("\\") or (line.count("'") % 2 and lines):
            line = f"{line}\n{lines.pop(0)}"
        yield Typed(line, tuple(lines))


def fits(shown: tuple[str, ...], printed: str) -> bool:
    """Is this what was shown? Runs of blanks count as one."""
    pattern = "".join(_line_pattern(line) for line in shown)
    return (
        re.fullmatch(pattern, "".join(f"{_squeezed(line)}\n" for line in printed.splitlines()))
        is not None
    )


def _line_pattern(line: str) -> str:
    if line.strip() == ANY:
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, _squeezed(line).split(ANY))) + r"\n"


def _squeezed(line: str) -> str:
    return " ".join(line.split())
