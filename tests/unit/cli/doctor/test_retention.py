"""What doctor says about rows that are kept for some time only."""

from datetime import UTC, datetime, timedelta

import pytest

from mitosis.cli.doctor.retention import NAMES, retention_checks
from mitosis.contracts.retention import RETENTION_KINDS, KeptRows

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def kept(**changes: object) -> KeptRows:
    values = {
        "kind": "leases",
        "kept_seconds": 30 * 86_400.0,
        "deleted_in_all": 12_345,
        "deleted_last": 67,
        "in_progress": False,
        "finished_at": NOW - timedelta(minutes=20),
        "next_at": NOW + timedelta(minutes=40),
        "overdue_seconds": 0.0,
    }
    return KeptRows.model_validate(values | changes)


@pytest.mark.parametrize(
    ("changes", "state", "found"),
    [
        ({}, "ok", "30d; 12,345 deleted so far, 67 by the last pass; next in 40m"),
        ({"kept_seconds": None}, "ok", "until deleted; "),
        ({"finished_at": None}, "ok", "not looked at yet; "),
        ({"in_progress": True, "overdue_seconds": 9e9}, "ok", "a pass is in progress"),
        ({"next_at": NOW - timedelta(seconds=9), "overdue_seconds": 9.0}, "ok", "next now"),
        ({"next_at": NOW - timedelta(hours=1), "overdue_seconds": 3600.0}, "warn", "next now"),
    ],
)
def test_each_kind_is_a_line(changes: dict[str, object], state: str, found: str) -> None:
    (check,) = retention_checks([kept(**changes)], NOW)
    assert (check.name, check.state) == ("kept: ended leases", state)
    assert found in check.found


def test_every_kind_has_a_name() -> None:
    assert set(NAMES) == set(RETENTION_KINDS)
