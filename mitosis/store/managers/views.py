"""Views of managers for users and for ManagerWorkflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel, model_validator
from sqlalchemy import BigInteger, Integer, Text, bindparam, or_, select, tuple_

from mitosis.contracts.control import ManagerView
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.http import HostFailureInfo, ManagerInfo, Page
from mitosis.contracts.lifecycle import ManagerState
from mitosis.contracts.manager_state import ManagerFacts, derived_manager_state
from mitosis.scheduling.host_failures import HostFailure
from mitosis.store.leases.fleet import with_failures
from mitosis.store.leases.switching import switching_of
from mitosis.store.managers.drain_info import drain_info
from mitosis.store.managers.lease_turn import lease_turn
from mitosis.store.managers.state_facts import state_of, with_state_facts
from mitosis.store.missing import require_manager
from mitosis.store.pg.compose import Composed, compose, fetch_composed
from mitosis.store.pg.database import Connection
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.tables import manager_live, managers, user_group_managers
from mitosis.store.store import Store
from mitosis.store.users.viewer import USER_GROUPS_OF_VIEWER, VIEWER_IS_ADMIN

SQL = load("managers/views.sql")
SHOW = with_failures(with_state_facts(SQL["show"])).replace(
    "$switching$", switching_of("d.manager_id = m.id AND d.group_id IS NULL")
)
OBSERVE = with_state_facts(SQL["observe"])
STATES = with_state_facts(SQL["states"])
MAX_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Key:
    id: int
    uuid: UUID
    name: str


@dataclass(frozen=True, slots=True)
class _State:
    """A row of ``states``."""

    manager_id: UUID
    facts: ManagerFacts


class _DerivesState(BaseModel):
    """A row with the facts of a host's state."""

    @model_validator(mode="before")
    @classmethod
    def _with_state(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**row, "state": state_of(row["facts"])}


class ShownManager(_DerivesState, ManagerInfo):
    """A row of ``show``."""

    @model_validator(mode="before")
    @classmethod
    def _with_lines(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        failures = [_failure_info(row["name"], facts) for facts in row["failures"]]
        drain = row["drain_facts"] and drain_info(row["drain_facts"], row["environments"])
        return {**row, "failures": failures, "drain": drain}


class ObservedManager(_DerivesState, ManagerView):
    """A row of ``observe``."""

    @model_validator(mode="before")
    @classmethod
    def _with_turn(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        lease = row["lease"]
        turn = lease_turn(lease["turn_facts"]) if lease and lease.get("turn_facts") else None
        return row if turn is None else {**row, "lease": {**lease, "turn": turn}}


def _failure_info(host_name: str, facts: Mapping[str, Any]) -> HostFailureInfo:
    failure = HostFailure(
        group=facts["group"],
        group_name=facts["group_name"],
        kind=HostFailureKind(facts["kind"]),
        failures=facts["failures"],
        reason=facts["reason"],
        tried_in_seconds=facts["tried_in_seconds"],
    )
    return HostFailureInfo(
        task_group_id=facts["task_group_id"],
        task_group_name=failure.group_name,
        kind=failure.kind,
        failures=failure.failures,
        reason=failure.reason,
        tried_at=facts["tried_at"],
        line=failure.sentence(host_name),
    )


async def get_manager(store: Store, manager_id: UUID) -> ManagerInfo:
    """Return one manager with its derived state, lease and environments.

    Raises:
        NotFound: there is no such manager.
    """
    async with store.database.connection() as connection:
        found = await some_managers(connection, store, [manager_id])
    return require_manager(found[0] if found else None, manager_id)


async def some_managers(
    connection: Connection, store: Store, manager_ids: Sequence[UUID]
) -> Sequence[ManagerInfo]:
    """Return those of these managers that exist, by name."""
    return await fetch_all(connection, ShownManager, SHOW, _parameters(store, manager_ids))


async def list_managers(
    store: Store, viewer_id: UUID, *, after: str | None = None, limit: int = 100
) -> Page[ManagerInfo]:
    """Return managers of the user's groups (an admin sees all), by name. ``limit`` is at most 500."""
    size = page_limit(limit, MAX_PAGE)
    values: dict[str, object] = {"viewer": viewer_id, "limit": size + 1}
    if after:
        values["after_name"], values["after_id"] = decode_cursor("managers", after, str, int)
    statement = _ids_of_page(is_first=not after)
    async with store.database.connection() as connection:
        found = await fetch_composed(connection, _Key, statement, **values)
        shown = await some_managers(connection, store, [row.uuid for row in found[:size]])
    last = found[size - 1] if len(found) > size else None
    return Page(
        items=[*shown],
        next=None if last is None else encode_cursor("managers", last.name, last.id),
    )


async def observe_manager(store: Store, manager_id: UUID) -> ManagerView:
    """Return the manager, its live lease and its environments as they are now, for ManagerWorkflow."""
    parameters = {
        "manager": manager_id,
        "host_lost_after": store.host_lost_after.total_seconds(),
        "suspect_after": store.suspect_after.total_seconds(),
    }
    async with store.database.connection() as connection:
        view = await fetch_one(connection, ObservedManager, OBSERVE, parameters)
    return ManagerView(manager_id=manager_id, exists=False) if view is None else view


async def manager_states(
    connection: Connection, store: Store, manager_ids: Sequence[UUID]
) -> Mapping[UUID, ManagerState]:
    """Return the derived state of each of these managers that exists."""
    rows = await fetch_all(connection, _State, STATES, _parameters(store, manager_ids))
    return {row.manager_id: derived_manager_state(row.facts) for row in rows}


@cache
def _ids_of_page(*, is_first: bool) -> Composed:
    """Select the ids of a page of the managers of the user's groups, by name."""
    in_own_group = managers.c.id.in_(
        select(user_group_managers.c.manager_id).where(
            user_group_managers.c.user_group_id.in_(USER_GROUPS_OF_VIEWER)
        )
    )
    rows = (
        select(managers.c.id, managers.c.uuid, managers.c.name)
        .join(manager_live)
        .where(managers.c.deleted_at.is_(None), or_(VIEWER_IS_ADMIN, in_own_group))
    )
    key = (managers.c.name, managers.c.id)
    if not is_first:
        after = bindparam("after_name", type_=Text), bindparam("after_id", type_=BigInteger)
        rows = rows.where(tuple_(*key) > tuple_(*after))
    return compose(rows.order_by(*key).limit(bindparam("limit", type_=Integer)))


def _parameters(store: Store, manager_ids: Sequence[UUID]) -> Mapping[str, object]:
    """Return the parameters of ``show`` and ``states``."""
    return {
        "ids": [*manager_ids],
        "host_lost_after": store.host_lost_after.total_seconds(),
        "quarantine_after": store.quarantine_after,
    }
