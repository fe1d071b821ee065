"""The fault matrix names tests that exist, and every test of a fault."""

import ast
import re
from pathlib import Path

from tests.support.sources import parsed

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "docs" / "fault-matrix.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py):(test_\w+)`")


def names_in(path: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = (node.name for node in parsed(path).body if isinstance(node, functions))
    return {name for name in names if name.startswith("test_")}


def test_every_test_that_the_matrix_names_exists() -> None:
    named = NAMED.findall(MATRIX.read_text())
    assert named
    missing = [f"{path}:{name}" for path, name in named if name not in names_in(ROOT / path)]
    assert missing == []


def test_every_row_of_the_matrix_names_a_test() -> None:
    rows = [line for line in MATRIX.read_text().splitlines() if line.startswith("| ")]
    headings = ("| Killed |", "| Interleaving |")
    assert [r for r in rows if not r.startswith(headings) and not NAMED.search(r)] == []


def test_every_test_of_a_fault_stands_in_the_matrix() -> None:
    named = set(NAMED.findall(MATRIX.read_text()))
    files = sorted((ROOT / "tests/integration").rglob("test_fault_*.py"))
    there = {(str(f.relative_to(ROOT)), name) for f in files for name in names_in(f)}
    assert there - named == set()
