"""Ends runs that cannot be carried on. It reads no definition, for that may be why."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.jobs.progress import storable
from mitosis.store.groups.endings import close_within
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.rows import (
    count_ends,
    lock_groups,
    notify_run,
    poke_run,
    poke_schedule,
)
from mitosis.store.store import Store

SQL = load("runs/giving_up.sql")


@dataclass(frozen=True, slots=True)
class _Run:
    id: int
    schedule_id: int | None


@dataclass(frozen=True, slots=True)
class _Group:
    task_group: UUID


async def stop_all(store: Store, number: int, reason: str) -> None:
    """Stop a run and its steps, so that their open tasks are cancelled."""
    given = {"run": number, "reason": storable(reason)}
    async with store.database.transaction() as connection:
        if await fetch_one(connection, _Run, SQL["lock_unended"], given) is not None:
            await connection.execute(SQL["stop_run"], given)
            await connection.execute(SQL["stop_steps"], given)


async def end_as_failed(store: Store, number: int) -> None:
    """End a stopped run and its steps, count what has ended, and close its own task groups."""
    given = {"run": number}
    async with store.database.transaction() as connection:
        run = await fetch_one(connection, _Run, SQL["lock_unended"], given)
        if run is None:
            return
        while await count_ends(connection, number):
            pass
        groups = [
            one.task_group
            for one in await fetch_all(connection, _Group, SQL["groups_to_close"], given)
        ]
        await lock_groups(connection, groups)
        for group in groups:
            await close_within(connection, group, "its run has failed")
        await connection.execute(SQL["groups_closed"], given)
        await connection.execute(SQL["end_steps"], given)
        await connection.execute(SQL["end_run"], given)
        await notify_run(connection, number, changed=True, due=False)
        await poke_run(connection, number)
        if run.schedule_id is not None:
            await poke_schedule(connection, run.schedule_id)
