"""The parameters of the run of a schedule, and what is shown when it does not start."""

from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.jobs import JobVersion
from mitosis.store.schedules import ticks
from mitosis.store.schedules.ticks import run_parameters

NIGHT = datetime(2026, 10, 24, 0, 30, tzinfo=UTC)


def test_parameters_may_name_the_time_in_the_zone_of_the_schedule_and_the_job() -> None:
    job = JobVersion(
        job_id=uuid4(),
        name="etl",
        group_name="team",
        version=3,
        digest="",
        created_by="ann",
        created_at=NIGHT,
        definition={},
    )
    given = {
        "date": "{{ run.nominal_date }}",
        "words": ["{{ run.nominal_time }}", 7, {"v": "{{ job.version }}"}],
        "text": "{{ job.name }} on {{ run.nominal_date }}",
    }
    late = datetime(2026, 10, 24, 22, 30, tzinfo=UTC)
    assert run_parameters(given, late, "Europe/Berlin", job) == {
        "date": "2026-10-25",
        "words": ["2026-10-25T00:30:00+02:00", 7, {"v": 3}],
        "text": "etl on 2026-10-25",
    }
    for wrong in ("{{ run.id }}", "{{ params.x }}", "{{ run.nominal_date", "{{ item }}x"):
        with pytest.raises(InvalidRequest, match=r"parameters|date") as refused:
            run_parameters({"date": wrong}, late, "UTC", job)
        assert str(refused.value.facts["field"]).startswith("parameters"), wrong


def test_a_failure_shows_no_value_of_its_row() -> None:
    error = psycopg.errors.UniqueViolation("twice\nDETAIL: the value is secret")
    assert ticks._reason(error) == "it cannot be started: UniqueViolation"
