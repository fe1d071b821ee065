"""What doctor says about schedules."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mitosis.cli.doctor.schedules import schedule_checks
from mitosis.contracts.schedules import ScheduleInfo

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def schedule(**changes: object) -> ScheduleInfo:
    values = {
        "schedule_id": uuid4(),
        "name": "nightly",
        "group_name": "team",
        "job_id": uuid4(),
        "job_name": "etl",
        "cron": "@daily",
        "time_zone": "UTC",
        "overlap": "skip",
        "jitter": 60,
        "catch_up": 3600,
        "paused": False,
        "revision": 2,
        "carried_revision": 2,
        "version": 1,
        "latest_version": 1,
        "owner": "ann",
        "created_at": NOW,
        "updated_at": NOW - timedelta(hours=1),
    }
    return ScheduleInfo.model_validate(values | changes)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"late_by": 300}, "1, 0 paused"),
        ({"late_by": 361}, "team/nightly: the last time was noticed late"),
        ({"refusal": "no"}, "team/nightly: the last start was refused"),
        ({"problem": "no", "carried_revision": 1}, "team/nightly: not in Temporal as it is"),
        ({"carried_revision": 1}, "team/nightly: Temporal does not have the last change"),
        ({"carried_revision": 1, "updated_at": NOW}, "1, 0 paused"),
    ],
)
def test_a_schedule_that_is_late_or_refused_is_named(
    changes: dict[str, object], found: str
) -> None:
    (check,) = schedule_checks([schedule(**changes)], NOW)
    assert check.found == found
    assert (check.state == "ok") == ("paused" in found)


def test_few_of_many_are_named_and_none_is_no_line() -> None:
    (check,) = schedule_checks([schedule(refusal="no") for _ in range(5)], NOW)
    assert "team/nightly and 2 more" in check.found
    assert list(schedule_checks([], NOW)) == []
