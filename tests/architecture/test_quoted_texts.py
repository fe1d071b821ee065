"""Texts that the troubleshooting page quotes are texts that the programs say."""

import ast
import re
import signal
from functools import cache
from pathlib import Path

import pytest

from mitosis.contracts.outcome import FailureKind
from tests.support.sources import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "troubleshooting.md"
CODE = ("mitosis", "api", "manager_agent", "activities", "workflows")
ROW = re.compile(r"^\| (`[^|]*`) \|", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")


def quoted(page: str) -> list[str]:
    """Every text in the first column of a table."""
    cells = [match[1].replace(r"\|", "¦") for match in ROW.finditer(page.replace(r"\|", "¦"))]
    return [text for cell in cells for text in QUOTED.findall(cell)]


@cache
def said() -> str:
    """All string constants of the product; what an f-string fills in separates its parts."""
    texts = [kind.replace("_", " ") for kind in FailureKind] + [one.name for one in signal.Signals]
    for package in CODE:
        for path in (ROOT / package).rglob("*.py"):
            texts += _strings(parsed(path), docstrings=path.name == "errors.py")
    return "\0".join(texts).lower()


def _strings(module: ast.Module, *, docstrings: bool) -> list[str]:
    """Docstrings of errors are their messages; others are not said by any program."""
    found, silent = [], set()
    for node in ast.walk(module):  # a statement comes before what is in it
        if isinstance(node, ast.Expr) and not docstrings:
            silent.add(id(node.value))
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            found.append(node.value)
    return found


def is_said(text: str) -> bool:
    parts = [part.strip() for part in re.split("…|USERNAME", text)]
    return all(part.lower() in said() for part in parts if part)


@pytest.mark.parametrize("text", quoted(PAGE.read_text()))
def test_a_quoted_text_is_one_of_ours(text: str) -> None:
    assert is_said(text)


def test_a_wrong_quote_would_be_noticed() -> None:
    assert len(quoted(PAGE.read_text())) > 30
    assert is_said("no host has … of the tags")
    assert not is_said("no host wants … of the tags")
