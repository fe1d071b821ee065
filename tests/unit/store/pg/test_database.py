"""The URL of a database, and what its failures become."""

import psycopg
import pytest

from mitosis.contracts.errors import ConfigurationError, DatabaseUnavailable, InvalidRequest
from mitosis.store.pg.database import as_unavailable, split_url


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


def test_a_value_that_cannot_be_stored_is_not_shown() -> None:
    with pytest.raises(InvalidRequest) as refused, as_unavailable():
        raise psycopg.errors.InvalidTextRepresentation("no number\nDETAIL: the value is secret")
    assert "secret" not in str(refused.value)
