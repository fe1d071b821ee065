"""What the generators of reference pages share: Markdown tables, texts of enum members, --check."""

import ast
import inspect
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [head, ["---"] * len(head), *escaped]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def member_texts(enum: type[Enum]) -> dict[str, str]:
    """Member name -> the docstring below it, which Python itself does not keep."""
    (body,) = ast.parse(inspect.getsource(enum)).body
    texts: dict[str, str] = {}
    for one, after in pairwise(getattr(body, "body", ())):
        match one, after:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = markdown(text)
    return texts


def markdown(docstring: str | None) -> str:
    """A docstring as one Markdown line."""
    return " ".join((docstring or "").split()).replace("``", "`")


def run_generator(page: Path, fresh: str) -> int:
    """Write the page, or with ``--check`` say whether it is as it would be written; exit status."""
    if "--check" in sys.argv[1:]:
        if page.exists() and page.read_text() == fresh:
            return 0
        print(f"{page.relative_to(ROOT)} is not up to date: make docs")
        return 1
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(fresh)
    return 0
