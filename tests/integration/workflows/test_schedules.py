"""Schedules over a real PostgreSQL and a real Temporal: one run for each time, whatever is lost."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.client import ScheduleDescription
from temporalio.service import RPCError

from mitosis.client.client import Client
from mitosis.contracts.errors import Conflict
from mitosis.contracts.lifecycle import RunState
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.runs import RunInfo
from mitosis.contracts.temporal_names import (
    temporal_schedule_id,
)
from mitosis.store.control.control_store import ControlStore
from tests.support.http_api import Api, in_process_api
from tests.support.waiting import wait_until_async
from workflows.client import ControlClient, TemporalAddress
from workflows.control import ControlService, Intervals
from workflows.worker import ControlPorts, WorkerLimits

BERLIN = "Europe/Berlin"
AT_ONCE = {
    "name": "etl",
    "parameters": {"date": {}},
    "steps": {"a": {"count": 0, "command": ["echo", "{{ params.date }}"]}},
}
"""Its runs have ended when they have started."""
DATE = {"date": "{{ run.nominal_date }}"}


@pytest.fixture
async def where(temporal_server: str) -> TemporalAddress:
    return TemporalAddress(temporal_server, f"test-{uuid.uuid4().hex[:8]}")


@pytest.fixture
async def api(database: str, where: TemporalAddress) -> AsyncIterator[Api]:
    async with in_process_api(database, await ControlClient.open(where)) as opened:
        yield opened


@asynccontextmanager
async def control(api: Api, where: TemporalAddress, every: float = 1.0) -> AsyncIterator[None]:
    store = ControlStore(api.app_state.store)
    ports = ControlPorts(store, store, store, store, store)
    service = ControlService(
        where,
        ports,
        store,
        store,
        every=Intervals(bootstrap_seconds=every),
        limits=WorkerLimits(versioned=False),
    )
    async with service:
        await service.wait_ready(30)
        yield


async def runs_of(client: Client, schedule: str) -> list[RunInfo]:
    """The runs of a schedule by their nominal time."""
    found = [one async for one in client.runs(schedule=schedule)]
    return sorted(found, key=lambda one: one.nominal_time or one.created_at)


async def have_runs(client: Client, schedule: str, count: int) -> list[RunInfo]:
    seen: list[object] = []

    def shown() -> str:
        return f"the runs are of {seen}"

    async def there_now() -> bool:
        seen[:] = [one.nominal_time for one in await runs_of(client, schedule)]
        return len(seen) >= count

    await wait_until_async(there_now, timeout=20, on_timeout=shown)
    return await runs_of(client, schedule)


async def described(temporal: TemporalClient, schedule_id: Any) -> ScheduleDescription | None:
    try:
        return await temporal.get_schedule_handle(temporal_schedule_id(schedule_id)).describe()
    except RPCError:
        return None


async def past_times_have_runs_around_both_changes_of_the_clocks(client: Client) -> None:
    first, last = datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 27, tzinfo=UTC)
    asked = await client.backfill_schedule("nightly", first, last)
    spring, summer = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)
    more = await client.backfill_schedule("nightly", spring, summer)
    runs = await have_runs(client, "nightly", 5)
    assert [one.nominal_time for one in runs] == [*more.times, *asked.times]
    local = [time.isoformat() for time in (*more.times, *asked.times)]
    assert local == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-30T02:30:00+02:00",  # no 02:30 on the 29th
        "2026-10-24T02:30:00+02:00",
        "2026-10-25T02:30:00+02:00",  # the first one of that night
        "2026-10-26T02:30:00+01:00",
    ]
    shown = await client.run(runs[3].run_id)
    assert shown.info.parameters == {"date": "2026-10-25"}
    assert (await shown.wait()).state is RunState.SUCCESS

    again = await client.backfill_schedule("nightly", first, last)
    assert (again.times, again.have_runs) == ((), 3)


@pytest.mark.spec("S001-47")
async def test_a_schedule_is_carried_out_shown_and_kept_as_its_row_is(
    api: Api, where: TemporalAddress
) -> None:
    async with control(api, where), api.client() as client:
        temporal = await where.connect()
        await client.define_job(AT_ONCE)
        made = await client.create_schedule(
            "etl",
            name="nightly",
            cron="30 2 * * *",
            time_zone=BERLIN,
            parameters=DATE,
            note="hello",
        )
        handle = temporal.get_schedule_handle(temporal_schedule_id(made.schedule_id))

        async def in_temporal() -> bool:
            return (await client.schedule("nightly")).carried_revision == 1

        await wait_until_async(in_temporal, timeout=20)
        found = await handle.describe()
        assert found.schedule.state.note == "admin/nightly runs etl: hello"
        assert await found.memo() == {"schedule": "nightly", "user_group": "admin", "job": "etl"}
        assert list(made.next_times) == found.info.next_action_times[:5]

        await past_times_have_runs_around_both_changes_of_the_clocks(client)

        await handle.pause(note="by hand")

        async def reverted() -> bool:
            return (await client.schedule("nightly")).reverted is not None

        await wait_until_async(reverted, timeout=20)
        assert "it was paused" in str((await client.schedule("nightly")).reverted)
        assert not (await handle.describe()).schedule.state.paused

        paused = await client.pause_schedule("nightly", "holidays")
        assert (paused.paused, paused.next_times) == (True, ())

        async def is_paused() -> bool:
            state = (await handle.describe()).schedule.state
            return (state.paused, state.note) == (True, "admin/nightly runs etl: holidays")

        await wait_until_async(is_paused, timeout=20)
        await client.trigger_schedule("nightly")
        runs = await have_runs(client, "nightly", 6)
        assert datetime.now(UTC) - (runs[-1].nominal_time or runs[-1].created_at) < timedelta(
            seconds=20
        )

        with pytest.raises(Conflict, match="has the schedule admin/nightly"):
            await client.delete_job("etl")
        await client.delete_schedule("nightly")

        async def gone() -> bool:
            return await described(temporal, made.schedule_id) is None

        await wait_until_async(gone, timeout=20)
        assert len([one async for one in client.runs(job="etl")]) == 6, "runs stay"


async def test_what_is_made_and_missed_while_temporal_is_away_or_lost_is_made_up_for(
    api: Api, temporal_server: str, where: TemporalAddress
) -> None:
    async with api.client() as client:
        await client.define_job(AT_ONCE)
        made = await client.create_schedule(
            "etl", name="hourly", cron="@hourly", overlap=Overlap.ALLOW_ALL, parameters=DATE
        )
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        async with api.app_state.store.database.connection() as connection:
            await connection.execute(
                "UPDATE schedule_spans SET from_at = %s", (hour - timedelta(hours=2, minutes=30),)
            )
        assert await runs_of(client, "hourly") == []
        async with control(api, where):
            runs = await have_runs(client, "hourly", 3)
            assert [one.nominal_time for one in runs] == [
                hour - timedelta(hours=n) for n in (2, 1, 0)
            ]
        lost = TemporalAddress(temporal_server, f"{where.namespace}-lost")
        temporal = await lost.connect()
        async with control(api, lost):

            async def rebuilt() -> bool:
                return await described(temporal, made.schedule_id) is not None

            await wait_until_async(rebuilt, timeout=20)
        assert [one.run_id for one in await runs_of(client, "hourly")] == [
            one.run_id for one in runs
        ]
