"""The loader of hand-written SQL, pages, arrays, and the URL of a database."""

import re
from pathlib import Path

import psycopg
import pytest

import mitosis.store
from mitosis.contracts.errors import ConfigurationError, DatabaseUnavailable, InvalidRequest
from mitosis.store.pg import statements
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import as_unavailable, split_url
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit

STORE = Path(mitosis.store.__path__[0])
SQL_FILES = sorted(str(path.relative_to(STORE)) for path in STORE.rglob("*.sql"))


@pytest.mark.parametrize("name", SQL_FILES)
def test_every_file_loads_and_every_statement_is_used(name: str) -> None:
    loaded = statements.load(name)
    assert loaded
    source = "".join(path.read_text() for path in STORE.rglob("*.py"))
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


def test_cursors_come_back_as_they_were() -> None:
    assert decode_cursor("hosts", encode_cursor("hosts", "ä,b", 7), str, int) == ("ä,b", 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "W10",
        "bnVsbA",
        encode_cursor("hosts", "a"),
        encode_cursor("hosts", 1, 2),
        encode_cursor("tasks", 1),
        "ä",
    ],
)
def test_foreign_cursors_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_cursor("hosts", text, int)


@pytest.mark.parametrize("limit", [0, -1, 11])
def test_limits_are_checked(limit: int) -> None:
    assert page_limit(10, 10) == 10
    with pytest.raises(InvalidRequest):
        page_limit(limit, 10)


def test_number_arrays() -> None:
    assert number_array([1, None, -2.5, 1e300]) == "{1,NULL,-2.5,1e+300}"
    assert number_array([]) == "{}"


def test_the_url_may_name_a_pooler() -> None:
    url = "postgresql://u:p%40@/db?host=%2Frun&pgbouncer=1"
    assert split_url(url) == ("postgresql://u:p%40@/db?host=%2Frun", True)
    assert split_url("postgresql://h/db?pgbouncer=0") == ("postgresql://h/db", False)
    with pytest.raises(ConfigurationError):
        split_url("mysql://h/db")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.errors.DeadlockDetected(), DatabaseUnavailable),
        (psycopg.errors.LockNotAvailable(), DatabaseUnavailable),
        (psycopg.errors.QueryCanceled(), DatabaseUnavailable),
        (psycopg.errors.AdminShutdown(), DatabaseUnavailable),
        (psycopg.InterfaceError(), DatabaseUnavailable),
        (psycopg.errors.InvalidTextRepresentation(), InvalidRequest),
        (psycopg.errors.UniqueViolation(), psycopg.errors.UniqueViolation),
    ],
)
def test_failures_of_the_server_become_our_errors(
    error: Exception, expected: type[Exception]
) -> None:
    with pytest.raises(expected), as_unavailable():
        raise error
