"""What `mitosis doctor` shows of schedules."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from mitosis.cli.doctor.check import Check, ok, warn
from mitosis.contracts.schedules import ScheduleInfo

LATE = timedelta(minutes=5)
"""Later than by jitter: nothing was there to start the run."""
MOST_NAMED = 3


def schedule_checks(schedules: Sequence[ScheduleInfo], now: datetime) -> Iterator[Check]:
    """Say how many there are, and which are late, refused, or wait for Temporal."""
    if not schedules:
        return
    found = f"{len(schedules)}, {sum(one.paused for one in schedules)} paused"
    refused = [one for one in schedules if one.refusal is not None]
    problems = [one for one in schedules if one.problem is not None]
    late = [one for one in schedules if one.late_by is not None and one.late_by > one.jitter + LATE]
    waiting = [
        one
        for one in schedules
        if one.carried_revision < one.revision and not one.problem and now - one.updated_at > LATE
    ]
    show = "mitosis job schedule show"
    if not (refused or problems or late or waiting):
        yield ok("schedules", found)
    if refused:
        yield warn("schedules", f"{_named(refused)}: the last start was refused", f"why: {show}")
    if problems:
        yield warn("schedules", f"{_named(problems)}: not in Temporal as it is", f"why: {show}")
    if late:
        yield warn(
            "schedules",
            f"{_named(late)}: the last time was noticed late",
            "no control worker ran then, or PostgreSQL did not",
        )
    if waiting:
        yield warn(
            "schedules",
            f"{_named(waiting)}: Temporal does not have the last change",
            "do a control worker and Temporal run? Start one: mitosis control",
        )


def _named(schedules: Sequence[ScheduleInfo]) -> str:
    names = [f"{one.group_name}/{one.name}" for one in schedules[:MOST_NAMED]]
    more = len(schedules) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
