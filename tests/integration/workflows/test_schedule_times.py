"""Times of schedules as we compute them, and as the real Temporal does."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleState

from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedule_control import CarriedSchedule
from mitosis.contracts.schedules import Timing
from mitosis.jobs.schedule_times import is_a_time, next_times, times_between
from workflows.client import TemporalAddress
from workflows.schedules import canonical, spec_of

BERLIN_SPRING = datetime(2026, 3, 29, 1, tzinfo=UTC)
BERLIN_AUTUMN = datetime(2026, 10, 25, 1, tzinfo=UTC)
NEW_YORK_AUTUMN = datetime(2026, 11, 1, 6, tzinfo=UTC)
LOST_OR_REPEATED_BY_TEMPORAL = ("0 1 * * *", "30 1,2 * * *", "0 * * * *", "*/20 1-3 * * mon,sun")
LEFT_OUT = ("30 2 * * *", "*/20 1-4 * * *")
AROUND: Sequence[tuple[str, datetime, Sequence[str]]] = (
    ("Europe/Berlin", BERLIN_SPRING, LEFT_OUT),
    ("Europe/Berlin", BERLIN_AUTUMN, LOST_OR_REPEATED_BY_TEMPORAL),
    ("Europe/London", BERLIN_AUTUMN, LOST_OR_REPEATED_BY_TEMPORAL[1:2]),
    ("America/New_York", NEW_YORK_AUTUMN, LOST_OR_REPEATED_BY_TEMPORAL),
)


def row(timing: Timing, now: datetime | None = None) -> CarriedSchedule:
    now = now or datetime.now(UTC)
    return CarriedSchedule(
        schedule_id=uuid4(),
        name="s",
        user_group="g",
        job="j",
        timing=timing,
        overlap=Overlap.SKIP,
        jitter=timedelta(0),
        catch_up=timedelta(days=1),
        paused=True,
        revision=1,
        carried_revision=0,
        now=now,
    )


async def made(client: Client, timing: Timing, now: datetime | None = None) -> str:
    """Make a paused schedule that starts nothing."""
    schedule_id = f"times-{uuid4()}"
    await client.create_schedule(
        schedule_id,
        Schedule(
            action=ScheduleActionStartWorkflow("None", id="none", task_queue="none"),
            spec=spec_of(row(timing, now)),
            state=ScheduleState(paused=True),
        ),
    )
    return schedule_id


async def matching(client: Client, timing: Timing, first: datetime, last: datetime) -> Any:
    schedule_id = await made(client, timing, first + timedelta(days=1))
    request = ListScheduleMatchingTimesRequest(
        namespace=client.namespace,
        schedule_id=schedule_id,
        start_time=stamp(first),
        end_time=stamp(last),
    )
    answer = await client.workflow_service.list_schedule_matching_times(request)
    await client.get_schedule_handle(schedule_id).delete()
    return [one.ToDatetime(tzinfo=UTC) for one in answer.start_time]


def stamp(moment: datetime) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(moment)
    return found


async def test_our_times_are_those_of_temporal_around_each_change_of_the_clocks(
    temporal_server: str,
) -> None:
    """Temporal gets the instants where the clocks go back: it would leave out or repeat some."""
    client = await TemporalAddress(temporal_server).connect()
    for zone, change, crons in AROUND:
        for cron in crons:
            timing = Timing(cron=cron, time_zone=zone)
            first, last = change - timedelta(days=2), change + timedelta(days=2)
            ours = times_between(timing, first, last, 1000)
            theirs = await matching(client, timing, first - timedelta(milliseconds=1), last)
            assert ours == theirs, (cron, zone)
            assert all(is_a_time(timing, one) for one in theirs)


async def test_the_next_times_shown_are_those_that_temporal_shows(temporal_server: str) -> None:
    client = await TemporalAddress(temporal_server).connect()
    now = datetime.now(UTC)
    start = now.replace(microsecond=0) + timedelta(days=3)
    for fields in (
        {"cron": "*/7 3 * * mon-fri", "time_zone": "Asia/Kolkata"},
        {"cron": "0 0 13 * 5"},
        {"interval": {"every": "7h", "offset": "10m"}},
        {"calendar": {"hour": "4,16", "minute": "30", "day_of_week": "sat,7", "second": "5"}},
        {"cron": "@hourly", "start_at": start, "end_at": start + timedelta(hours=9)},
    ):
        timing = Timing(**fields)
        schedule_id = await made(client, timing)
        described = await client.get_schedule_handle(schedule_id).describe()
        await client.get_schedule_handle(schedule_id).delete()
        theirs = described.info.next_action_times[:5]
        assert next_times(timing, datetime.now(UTC), 5) == theirs, fields
        assert canonical(described.schedule.spec) == canonical(spec_of(row(timing)))
