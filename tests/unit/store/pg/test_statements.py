"""The loader of hand-written SQL, pages, arrays, and the URL of a database."""

import re
from pathlib import Path

import pytest

import mitosis.store
from mitosis.store.pg import statements
from mitosis.store.pg.arrays import number_array

STORE = Path(mitosis.store.__path__[0])
SQL_FILES = sorted(str(path.relative_to(STORE)) for path in STORE.rglob("*.sql"))


@pytest.fixture(scope="module")
def source() -> str:
    """All Python of the store."""
    return "".join(path.read_text() for path in STORE.rglob("*.py"))


@pytest.mark.parametrize("name", SQL_FILES)
def test_every_file_loads_and_every_statement_is_used(name: str, source: str) -> None:
    loaded = statements.load(name)
    assert loaded
    unused = [key for key in loaded if f'"{key}"' not in source]
    dynamic = {"close", "reopen", "cancel", "complete", "kill_after_all", "force"}
    assert set(unused) <= dynamic


def test_nothing_newer_than_postgresql_15_is_said() -> None:
    text = "".join(
        statements.load(name)[key] for name in SQL_FILES for key in statements.load(name)
    )
    assert not re.search(
        r"\b(uuidv7|json_table|any_value|merge into|returning (old|new)\.)", text, re.IGNORECASE
    )


def test_number_arrays() -> None:
    assert number_array([1, None, -2.5, 1e300]) == "{1,NULL,-2.5,1e+300}"
    assert number_array([]) == "{}"
