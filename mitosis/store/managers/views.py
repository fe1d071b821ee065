"""Views of managers for users and for ManagerWorkflow."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from mitosis.contracts.control import ManagerView
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import ManagerInfo, Page
from mitosis.contracts.lifecycle import ManagerState
from mitosis.store.managers.state_facts import state_of, with_state_facts
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("managers/views.sql")
SHOW = with_state_facts(SQL["show"])
OBSERVE = with_state_facts(SQL["observe"])
STATES = with_state_facts(SQL["states"])
MAX_PAGE = 500


async def get_manager(store: Store, manager_id: UUID) -> ManagerInfo:
    """Return one manager with its derived state, lease and environments.

    Raises:
        NotFound: there is no such manager.
    """
    async with store.database.connection() as connection:
        found = await some_managers(connection, store, [manager_id])
    if not found:
        raise NotFound("no such manager", manager_id=str(manager_id))
    return found[0]


async def some_managers(
    connection: Connection, store: Store, manager_ids: Sequence[UUID]
) -> Sequence[ManagerInfo]:
    """Return those of these managers that exist, by name."""
    parameters = _parameters(store, ids=list(manager_ids))
    rows = await (await connection.execute(SHOW, parameters)).fetchall()
    return [info(row) for row in rows]


async def list_managers(
    store: Store, viewer_id: UUID, *, after: str | None = None, limit: int = 100
) -> Page[ManagerInfo]:
    """Return managers of the user's groups (an admin sees all), by name. ``limit`` is at most 500."""
    size = page_limit(limit, MAX_PAGE)
    name, number = decode_cursor("managers", after, str, int) if after else (None, None)
    parameters = _parameters(
        store, viewer=viewer_id, after_name=name, after_id=number, limit=size + 1
    )
    async with store.database.connection() as connection:
        rows = await (await connection.execute(SHOW, parameters)).fetchall()
    last = rows[size - 1] if len(rows) > size else None
    return Page(
        items=[info(row) for row in rows[:size]],
        next=None if last is None else encode_cursor("managers", last["name"], last["number"]),
    )


async def observe_manager(store: Store, manager_id: UUID) -> ManagerView:
    """Return the manager, its live lease and its environments as they are now, for ManagerWorkflow."""
    parameters = {
        "manager": manager_id,
        "host_lost_after": store.host_lost_after.total_seconds(),
        "suspect_after": store.suspect_after.total_seconds(),
    }
    async with store.database.connection() as connection:
        row = await (await connection.execute(OBSERVE, parameters)).fetchone()
    if row is None:
        return ManagerView(manager_id=manager_id, exists=False)
    return control_view(row)


async def manager_states(
    connection: Connection, store: Store, manager_ids: Sequence[UUID]
) -> Mapping[UUID, ManagerState]:
    """Return the derived state of each of these managers that exists."""
    rows = await (
        await connection.execute(STATES, _parameters(store, ids=list(manager_ids)))
    ).fetchall()
    return {row["manager_id"]: state_of(row["facts"]) for row in rows}


def control_view(row: Mapping[str, Any]) -> ManagerView:
    """Return a row of ``observe`` as ManagerWorkflow takes it."""
    return ManagerView.model_validate({**row, "state": state_of(row["facts"])})


def info(row: Mapping[str, Any]) -> ManagerInfo:
    """Return a row of ``show`` as the API answers it."""
    return ManagerInfo.model_validate({**row, "state": state_of(row["facts"])})


def _parameters(store: Store, **which: Any) -> Mapping[str, Any]:
    """Return the parameters of ``show``; ``which`` replaces the defaults, which select all managers."""
    everything = dict.fromkeys(("ids", "viewer", "after_name", "after_id", "limit"))
    return {
        **everything,
        "host_lost_after": store.host_lost_after.total_seconds(),
        **which,
    }
