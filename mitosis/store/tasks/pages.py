"""The ids of a page of tasks, by a statement for each kind of state that an index serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.lifecycle import TASK, ListedState, TaskState
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import decode_cursor, encode_cursor
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load

SQL = load("tasks/pages.sql")
SCAN = 10_000
"""Rows that a page of ready or blocked tasks reads at most: 5 ms."""
LONG_AGO = "-infinity"


@dataclass(frozen=True, slots=True)
class IdsOfPage:
    """The ids of one page, and the cursor of the next one; None: there is none."""

    ids: Sequence[int]
    next: str | None


@dataclass(frozen=True, slots=True)
class _Id:
    id: int
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    ids: list[int]
    seen_to: int | None


async def ids_of_page(
    connection: Connection,
    of: tuple[UUID, int],
    state: ListedState | None,
    after: str | None,
    size: int,
) -> IdsOfPage:
    """Select the ids of a page of the tasks of a group, its public id and its number.

    Raises:
        InvalidRequest: ``after`` is not from an earlier page of the same list.
    """
    name, number = f"tasks of {of[0]}", of[1]
    if state is ListedState.DELAYED:
        return await _delayed(connection, f"delayed {name}", number, after, size)
    (last,) = decode_cursor(name, after, int) if after else (0,)
    values = {"group_number": number, "after": last, "limit": size + 1}
    if state in (ListedState.READY, ListedState.BLOCKED):
        values["blocked"] = state is ListedState.BLOCKED
        ids, seen_to = await _unclaimed(connection, values, size + size + 1)
        if len(ids) <= size and seen_to is not None:
            ids, seen_to = await _unclaimed(connection, values, SCAN)
    else:
        ids, seen_to = await _ids(connection, state, values), None
    if len(ids) > size:
        seen_to = ids[size - 1]
    return IdsOfPage(ids[:size], None if seen_to is None else encode_cursor(name, seen_to))


async def _ids(
    connection: Connection, state: ListedState | None, values: dict[str, object]
) -> list[int]:
    if state is None:
        statement = SQL["any"]
    elif state in (ListedState.HELD, ListedState.RUNNING):
        statement, values = SQL["held"], {**values, "running": state is ListedState.RUNNING}
    elif TaskState(state) in TASK.terminal:
        statement, values = SQL["ended"], {**values, "state": state.value}
    else:
        raise AssertionError(state)
    return [row.id for row in await fetch_all(connection, _Id, statement, values)]


async def _unclaimed(
    connection: Connection, values: dict[str, object], scan: int
) -> tuple[list[int], int | None]:
    found = await fetch_one(connection, _Seen, SQL["unclaimed"], {**values, "scan": scan})
    return (found.ids, found.seen_to) if found else ([], None)


async def _delayed(
    connection: Connection, name: str, number: int, after: str | None, size: int
) -> IdsOfPage:
    time, last = decode_cursor(name, after, str, int) if after else (LONG_AGO, 0)
    values = {"group_number": number, "after_time": _time(time), "after": last, "limit": size + 1}
    found = await fetch_all(connection, _Id, SQL["delayed"], values)
    more = len(found) > size
    last_row = found[size - 1] if more else None
    return IdsOfPage(
        [row.id for row in found[:size]],
        encode_cursor(name, str(last_row.not_before), last_row.id) if last_row else None,
    )


def _time(text: str) -> str:
    try:
        return text if text == LONG_AGO else datetime.fromisoformat(text).isoformat()
    except ValueError as error:
        raise InvalidRequest(
            "must be the next of an earlier page of this list", field="after"
        ) from error
