"""A control worker that is killed between a tick of Temporal and the run: one run for each time."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import pytest
from psycopg import AsyncConnection
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError

from mitosis.contracts.overlap import Overlap
from mitosis.store.pg.database import split_url
from tests.support.campaigns import World
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.control_process import ControlProcess
from tests.support.runs import Runs
from tests.support.schedules import AT_ONCE, Scheduled, made
from tests.support.waiting import wait_until_async

EVERY = timedelta(seconds=10)
HELD: dict[str, tuple[LiteralString, ...]] = {
    "before the time is stored": ("SELECT FROM schedules FOR UPDATE",),
    "before the run is stored": ("LOCK TABLE runs IN EXCLUSIVE MODE",),
}


@asynccontextmanager
async def held(database: str, *statements: LiteralString) -> AsyncIterator[AsyncConnection[Any]]:
    """Hold up whoever wants to go further."""
    url = split_url(database)[0]
    async with await AsyncConnection.connect(url) as connection, connection.transaction():
        for statement in statements:
            await connection.execute(statement)
        yield connection


async def somebody_waits(connection: AsyncConnection[Any]) -> bool:
    found = await connection.execute(
        "SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    )
    return found.rowcount > 0


async def ticks(plane: ControlPlane, schedule: UUID) -> list[WorkflowExecution]:
    client = await plane.client()
    found: list[WorkflowExecution] = []
    with contextlib.suppress(RPCError):
        query = "WorkflowType = 'ScheduledRunWorkflow'"
        found = [one async for one in client.list_workflows(query) if str(schedule) in one.id]
    return found


@pytest.mark.new_sessions
@pytest.mark.timeout(120)
@pytest.mark.spec("S001-47")
async def test_a_control_worker_killed_between_a_tick_and_the_run_starts_one_run(
    database: str, temporal_server: str
) -> None:
    async with control_plane(database, temporal_server) as plane:
        r = Runs(World(plane.stores.store, plane.stores.admin), user="admin")
        begun = datetime.now(UTC)
        given = {"interval": {"every": EVERY}, "overlap": Overlap.ALLOW_ALL}
        schedule = Scheduled(r, await made(r, AT_ONCE, **given))
        control = ControlProcess(plane, database)
        try:
            await control.start()

            async def in_temporal() -> bool:
                return (await schedule.info()).carried_revision == 1

            await wait_until_async(in_temporal, timeout=30)
            for name, statements in HELD.items():
                async with held(database, *statements) as connection:
                    await wait_until_async(
                        lambda c=connection: somebody_waits(c),  # type: ignore[misc]
                        timeout=30,
                        on_timeout=lambda n=name: f"nobody was held {n}",  # type: ignore[misc]
                    )
                    await control.kill()
                known = len(await schedule.runs())
                await control.start()

                async def more(n: int = known) -> bool:
                    return len(await schedule.runs()) > n

                await wait_until_async(more, timeout=30)

            async def ticked() -> bool:
                return len(await ticks(plane, schedule.id)) >= 2

            await wait_until_async(ticked, timeout=30)
        finally:
            await control.kill()
        while await plane.stores.control.take_schedule_turn(schedule.id):
            pass
        times = sorted(await schedule.runs())
        first = datetime.fromtimestamp((begun.timestamp() // 10 + 1) * 10, UTC)
        last = datetime.now(UTC)
        assert times == [first + n * EVERY for n in range(int((last - first) / EVERY) + 1)]
