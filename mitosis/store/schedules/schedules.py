"""Makes, changes, shows and deletes schedules of jobs. The table is the truth, which Temporal carries out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from psycopg.types.json import Json
from pydantic import ValidationError

from mitosis.contracts.errors import AlreadyExists, Conflict, NotFound
from mitosis.contracts.http import Page
from mitosis.contracts.ids import as_uuid
from mitosis.contracts.schedule_control import unreadable_text
from mitosis.contracts.schedules import LATEST, ScheduleInfo, ScheduleQuery
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("schedules/schedules.sql")
MAX_PAGE = 500
DROPPED = "it was dropped when the schedule was paused"


def _filled(statement: LiteralString) -> LiteralString:
    columns, tables = SQL["schedule_columns"], SQL["schedule_tables"]
    return statement.replace("$schedule_columns$", columns).replace("$schedule_tables$", tables)


@dataclass(frozen=True, slots=True)
class _Added:
    uuid: UUID


async def create_schedule(store: Store, user_id: UUID, wanted: ScheduleInfo) -> UUID:
    """Store a schedule of a job. The caller has checked it and the permission.

    Raises:
        AlreadyExists: the user group has one with this name.
    """
    values = {**_values(wanted), "user": user_id, "job": wanted.job_id, "name": wanted.name}
    async with store.database.transaction() as connection:
        added = await fetch_one(connection, _Added, SQL["add"], values)
        if added is None:
            raise AlreadyExists(
                f"there is a schedule {wanted.group_name}/{wanted.name}: give another name",
                field="name",
            )
        await poke(connection, schedules=[added.uuid])
    return added.uuid


async def change_schedule(store: Store, user_id: UUID, wanted: ScheduleInfo) -> None:
    """Store a changed schedule of which the user becomes the owner, if its revision is still the same.

    Raises:
        Conflict: it was changed at the same time.
    """
    of_row = {"schedule": wanted.schedule_id, "revision": wanted.revision}
    values = {**_values(wanted), **of_row, "user": user_id}
    async with store.database.transaction() as connection:
        changed = await fetch_one(connection, _Added, SQL["change"], values)
        if changed is None:
            raise Conflict("the schedule was changed or deleted at the same time: try again")
        await poke(connection, schedules=[changed.uuid])


async def pause_schedule(
    store: Store, schedule_id: UUID, note: str | None, *, drop: bool = False
) -> None:
    """Start no runs at its times and of backfills; ``drop``: end all that waits to start. Idempotent."""
    given = {"schedule": schedule_id, "note": note, "reason": DROPPED}
    async with store.database.transaction() as connection:
        await connection.execute(SQL["hold"], given)
        await connection.execute(SQL["pause"], given)
        if drop:
            await connection.execute(SQL["drop_spans"], given)
            await connection.execute(SQL["drop"], given)
        await poke(connection, schedules=[schedule_id])


async def resume_schedule(store: Store, schedule_id: UUID, note: str | None) -> None:
    """Start runs at its times from now on. Idempotent."""
    await _write(store, schedule_id, SQL["resume"], {"note": note})


async def delete_schedule(store: Store, schedule_id: UUID) -> None:
    """Delete a schedule; its runs stay. Idempotent."""
    await _write(store, schedule_id, SQL["delete"], {})


async def read_schedule(store: Store, reference: str) -> ScheduleInfo:
    """Return the schedule with this id or ``USERGROUP/NAME``, without its next times.

    Raises:
        NotFound: there is none.
    """
    group_name, _, name = reference.partition("/")
    values = {"schedule": as_uuid(reference), "group_name": group_name, "name": name}
    async with store.database.connection() as connection:
        row = await (await connection.execute(_filled(SQL["schedule"]), values)).fetchone()
    if row is None:
        raise NotFound(f"there is no schedule {reference}")
    return _info(row)


async def list_schedules(store: Store, viewer_id: UUID, query: ScheduleQuery) -> Page[ScheduleInfo]:
    """Return the schedules of the user's groups (an admin sees all), by group and name."""
    size = page_limit(query.limit, MAX_PAGE)
    key = decode_cursor("schedules", query.after, str, str) if query.after else ("", "")
    values = {
        "viewer": viewer_id,
        "limit": size + 1,
        "after_group": key[0],
        "after_name": key[1],
        "job": query.job,
        "group_name": query.group_name,
    }
    async with store.database.connection() as connection:
        rows = await (await connection.execute(_filled(SQL["schedules"]), values)).fetchall()
    items = [_info(row) for row in rows[:size]]
    last = items[-1] if len(rows) > size else None
    cursor = None if last is None else encode_cursor("schedules", last.group_name, last.name)
    return Page(items=items, next=cursor)


def _info(row: Mapping[str, Any]) -> ScheduleInfo:
    """Return a row as users see it: without its times, and with the reason, if they cannot be read."""
    try:
        return ScheduleInfo.model_validate(row)
    except ValidationError as error:
        unread = dict.fromkeys(("cron", "interval", "calendar"))
        return ScheduleInfo.model_validate({**row, **unread, "problem": unreadable_text(error)})


async def _write(
    store: Store, schedule_id: UUID, statement: LiteralString, given: Mapping[str, Any]
) -> None:
    async with store.database.transaction() as connection:
        await connection.execute(statement, {"schedule": schedule_id, **given})
        await poke(connection, schedules=[schedule_id])


def _values(wanted: ScheduleInfo) -> dict[str, Any]:
    timing = wanted.model_dump(
        mode="json", include={"cron", "interval", "calendar"}, exclude_none=True
    )
    return {
        "version": None if wanted.version == LATEST else wanted.version,
        "accepted_version": wanted.accepted_version,
        "parameters": Json(wanted.parameters),
        "labels": list(wanted.labels),
        "timing": Json(timing),
        "time_zone": wanted.time_zone,
        "start_at": wanted.start_at,
        "end_at": wanted.end_at,
        "overlap": wanted.overlap.value,
        "jitter": wanted.jitter.total_seconds(),
        "catch_up": wanted.catch_up.total_seconds(),
        "paused": wanted.paused,
        "note": wanted.note,
    }
