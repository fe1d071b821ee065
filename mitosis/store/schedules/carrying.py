"""Schedules as the control worker brings them to Temporal (protocol P17)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from mitosis.contracts.schedule_control import (
    CarriedSchedule,
    UnreadableSchedule,
    unreadable_text,
)
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("schedules/carrying.sql")


async def carried_schedules(
    store: Store, schedule_id: UUID | None = None
) -> Sequence[CarriedSchedule | UnreadableSchedule]:
    """Return all schedules, or one if it is there. One that cannot be read stops no other."""
    async with store.database.connection() as connection:
        found = await connection.execute(SQL["carried"], {"schedule": schedule_id})
        rows = await found.fetchall()
    if schedule_id is not None:
        return [_carried(row) for row in rows]
    return await asyncio.to_thread(
        lambda: [_carried(row) for row in rows]
    )  # there may be thousands


def _carried(row: Mapping[str, Any]) -> CarriedSchedule | UnreadableSchedule:
    try:
        return CarriedSchedule.model_validate(row)
    except ValidationError as error:
        return UnreadableSchedule.model_validate({**row, "reason": unreadable_text(error)})


async def due_schedules(store: Store) -> Sequence[UUID]:
    """Return the schedules that may have a run to start."""
    async with store.database.connection() as connection:
        rows = await connection.execute(SQL["due_schedules"])
        return [row["schedule_id"] for row in await rows.fetchall()]


async def note_carried(store: Store, carried: CarriedSchedule) -> None:
    """Note that Temporal has the schedule as it was read."""
    given = {"schedule": carried.schedule_id, "revision": carried.revision}
    async with store.database.connection() as connection:
        await connection.execute(SQL["note_carried"], given)


async def note_problem(
    store: Store, carried: CarriedSchedule | UnreadableSchedule, problem: str
) -> None:
    """Show why Temporal does not have the schedule as it was read."""
    given = {"schedule": carried.schedule_id, "revision": carried.revision, "problem": problem}
    async with store.database.connection() as connection:
        await connection.execute(SQL["note_problem"], given)


async def note_reverted(store: Store, carried: CarriedSchedule, what: str) -> None:
    """Show that a change by hand in Temporal was undone, unless the row has changed by now."""
    given = {"schedule": carried.schedule_id, "revision": carried.revision, "what": what}
    async with store.database.connection() as connection:
        await connection.execute(SQL["note_reverted"], given)
