"""Statements of the store stand in the folder of their noun, and the Python that uses them beside them."""

import re
from collections import Counter
from pathlib import Path

from tests.support.checkout import ROOT

STORE = ROOT / "mitosis" / "store"
LOAD = re.compile(r'\bload\("([^"]*)"\)')


def loads() -> list[tuple[Path, str]]:
    """Return each call of ``load`` with its module, both relative to the store."""
    return [
        (module.relative_to(STORE), file)
        for module in sorted(STORE.rglob("*.py"))
        for file in LOAD.findall(module.read_text())
        if module.name != "statements.py"
    ]


def test_a_module_loads_statements_of_its_own_folder_only() -> None:
    assert [(m, f) for m, f in loads() if Path(f).parent != m.parent] == []


def test_no_module_uses_the_statements_of_another() -> None:
    importing = re.compile(r"import \(?[^)\n]*\bSQL\b")
    assert [m.name for m in STORE.rglob("*.py") if importing.search(m.read_text())] == []


def test_every_file_of_statements_is_loaded_and_every_statement_used() -> None:
    files = {str(path.relative_to(STORE)) for path in STORE.rglob("*.sql")}
    assert files == {file for _, file in loads()}
    unused = [
        f"{path.relative_to(STORE)}:{name}"
        for path in STORE.rglob("*.sql")
        for name in re.findall(r"^-- name: (\w+)", path.read_text(), re.MULTILINE)
        if not any(f'"{name}"' in module.read_text() for module in path.parent.glob("*.py"))
    ]
    assert unused == []


def test_names_of_statements_are_distinct_in_a_folder() -> None:
    """Otherwise the statement that a log or pg_stat_activity shows could be either."""
    names = Counter(
        (path.parent.name, name)
        for path in STORE.rglob("*.sql")
        for name in re.findall(r"^-- name: (\w+)", path.read_text(), re.MULTILINE)
    )
    assert [name for name, count in names.items() if count > 1] == []
