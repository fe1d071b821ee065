"""Ticks of Temporal that are of no time of the schedule."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mitosis.contracts.schedule_control import Tick, times_digest
from mitosis.contracts.schedules import Interval, Timing
from mitosis.store.schedules import due_times

NIGHT = datetime(2026, 11, 28, 1, 30, tzinfo=UTC)
"""02:30 in Berlin."""
BERLIN = Timing(cron="30 2 * * *", time_zone="Europe/Berlin")
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("timing", "at", "is_refused"),
    [
        (BERLIN, NIGHT + HOUR, True),  # as without winter time
        (BERLIN, NIGHT - HOUR / 2, True),
        (BERLIN, NIGHT + HOUR + SECOND, False),
        (BERLIN, NIGHT + 4 * HOUR, False),
        (Timing(cron="30 1 * * *"), NIGHT + HOUR, False),
        (Timing(interval=Interval(every=24 * HOUR, offset=NIGHT.hour * HOUR)), NIGHT, False),
    ],
)
def test_a_tick_by_other_data_of_the_time_zone_is_no_start_by_hand(
    timing: Timing, at: datetime, is_refused: bool
) -> None:
    """The time has its run when it comes by our own data: a tick that counted would double it."""
    tick = Tick(schedule_id=UUID(int=0), nominal_time=at, started_at=at, times=times_digest(timing))
    reason = due_times._no_start_by_hand(timing, tick)
    assert ("other data of the time zone" in str(reason)) == is_refused, reason
    assert is_refused or reason is None
