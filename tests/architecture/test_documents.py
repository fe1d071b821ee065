"""Documents stay true: links resolve, the tour names code that exists, generated pages are fresh."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.prepared import base_environment, python
from tests.support.sources import parsed_text

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
    }
)
GENERATORS = sorted((ROOT / "tools").glob("gen_*.py"))
TOUR = ROOT / "docs" / "tour.md"

LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
# `mitosis/store/tasks/claim.py:claim_tasks`, `mitosis/store/tasks/claim.sql:claim`, `docs/x.md`
PLACE = re.compile(r"`(?P<path>[\w./-]+\.(?:py|sql|md|toml|yml))(?::(?P<symbol>[\w.]+))?`")
SQL_NAME = re.compile(r"^-- name: (\w+)", re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_resolve(document: Path) -> None:
    text = CODE.sub("", document.read_text())
    broken = [
        target
        for target in (match["target"] for match in LINK.finditer(text))
        if "://" not in target and not target.startswith("mailto:") and _is_broken(document, target)
    ]
    assert broken == []


def _is_broken(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    linked = (document.parent / path).resolve() if path else document
    if not linked.exists():
        return True
    return bool(anchor) and linked.suffix == ".md" and anchor not in _anchors(linked)


@cache
def _anchors(document: Path) -> frozenset[str]:
    """The anchors of the headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    )


def test_the_tour_names_only_what_exists() -> None:
    places = list(PLACE.finditer(TOUR.read_text()))
    assert places
    assert [m[0] for m in places if not place_exists(m["path"], m["symbol"])] == []


def place_exists(path: str, symbol: str | None) -> bool:
    """Is there such a file, and does it define ``symbol`` (dotted for a member of a class)?"""
    file = ROOT / path
    if not file.is_file():
        return False
    return symbol is None or symbol in _symbols(file)


@cache
def _symbols(file: Path) -> frozenset[str]:
    text = file.read_text()
    if file.suffix == ".sql":
        return frozenset(SQL_NAME.findall(text))
    return frozenset(_defined(parsed_text(text), ""))


def _defined(node: ast.AST, prefix: str) -> set[str]:
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found |= {f"{prefix}{child.name}"} | _defined(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            found |= {prefix + name.id for name in targets if isinstance(name, ast.Name)}
    return found


def test_a_place_that_does_not_exist_is_noticed() -> None:
    here = named(Path(__file__))
    assert place_exists(here, None)
    assert place_exists(here, "place_exists")
    assert place_exists(here, "TOUR")
    assert place_exists("mitosis/contracts/lifecycle.py", "Lifecycle.after")
    assert not place_exists(here, "no_such_function")
    assert not place_exists("mitosis/contracts/lifecycle.py", "after")
    assert not place_exists("mitosis/no_such_file.py", None)


@pytest.mark.parametrize("generator", GENERATORS, ids=named)
def test_generated_documents_are_fresh(generator: Path) -> None:
    env = base_environment()
    program = [sys.executable] if generator.stem == "gen_errors" else python(env)
    argv = [*program, str(generator), "--check"]  # the page of errors lists what it has imported
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun `make docs`"
