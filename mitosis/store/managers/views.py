"""What is shown of managers."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from mitosis.contracts.control import ManagerView
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import ManagerInfo, Page
from mitosis.store.managers.state_facts import state_of, with_state_facts
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.statements import load

SHOW = with_state_facts(load("managers/managers.sql")["show"])
MAX_PAGE = 500


async def one(database: Database, manager_id: UUID, host_lost_after: float) -> ManagerInfo:
    """See :meth:`mitosis.store.managers.contact.ManagerStore.get`."""
    async with database.connection() as connection:
        found = await some(connection, [manager_id], host_lost_after)
    if not found:
        raise NotFound("no such manager", manager_id=str(manager_id))
    return found[0]


async def some(
    connection: Connection, manager_ids: Sequence[UUID], host_lost_after: float
) -> Sequence[ManagerInfo]:
    """These managers, those that exist, by name."""
    cursor = await connection.execute(
        SHOW,
        {
            "ids": list(manager_ids),
            "viewer": None,
            "after_name": None,
            "after_id": None,
            "limit": None,
            "host_lost_after": host_lost_after,
        },
    )
    return [info(row) for row in await cursor.fetchall()]


async def page(
    database: Database, viewer_id: UUID, after: str | None, limit: int, host_lost_after: float
) -> Page[ManagerInfo]:
    """See :meth:`mitosis.store.managers.contact.ManagerStore.list`."""
    size = page_limit(limit, MAX_PAGE)
    name, number = decode_cursor("managers", after, str, int) if after else (None, None)
    async with database.connection() as connection:
        cursor = await connection.execute(
            SHOW,
            {
                "ids": None,
                "viewer": viewer_id,
                "after_name": name,
                "after_id": number,
                "limit": size + 1,
                "host_lost_after": host_lost_after,
            },
        )
        rows = await cursor.fetchall()
    last = rows[size - 1] if len(rows) > size else None
    return Page(
        items=[info(row) for row in rows[:size]],
        next=None if last is None else encode_cursor("managers", last["name"], last["number"]),
    )


def control_view(row: Mapping[str, Any]) -> ManagerView:
    """Return a row of ``observe`` as ManagerWorkflow takes it."""
    return ManagerView.model_validate({**row, "state": state_of(row["facts"])})


def info(row: Mapping[str, Any]) -> ManagerInfo:
    """Return a row of ``show`` as the API answers it."""
    return ManagerInfo.model_validate({**row, "state": state_of(row["facts"])})
