"""`explain` of a host: what it does, and why it does not serve the task groups that have work."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.explain import GroupReason, HostExplanation, Obstacle
from mitosis.scheduling.actions import Offer
from mitosis.scheduling.explain import HostChain
from mitosis.scheduling.explain_host import ExplainedHost, explain_host
from mitosis.scheduling.facts import Group
from mitosis.scheduling.snapshot import Snapshot
from mitosis.store.leases.decisions import decision_before, shown
from mitosis.store.leases.fleet import HOSTS_BY_NUMBER, HostRow
from mitosis.store.leases.fleet_snapshot import fact_parameters
from mitosis.store.leases.kept_fleet import copied_fleet
from mitosis.store.managers.views import manager_states
from mitosis.store.missing import require_manager
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("managers/explain.sql")
MOST_HOSTS = 200
"""In a larger fleet, Temporal's details do not say why a host is not used: each observation would decide for
all hosts."""


@dataclass(frozen=True, slots=True)
class _Host:
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class _Fleet:
    large: bool


@dataclass(frozen=True, slots=True)
class _GroupId:
    number: int
    uuid: UUID


async def explain_manager(
    store: Store, manager_id: UUID, user_groups: Collection[str] | None = None
) -> HostExplanation:
    """Explain the state of a host.

    ``user_groups``: names of those whose task groups may be named; None: all.

    Raises:
        NotFound: there is no such host.
    """
    async with store.database.connection() as connection:
        host = await _host(connection, manager_id)
        values = {**fact_parameters(store), "managers": [host.number], "group_number": None}
        rows = await fetch_all(connection, HostRow, HOSTS_BY_NUMBER, values)
        states = await manager_states(connection, store, [manager_id])
    fleet = await copied_fleet(store, rows)
    explained = await _explained(fleet.snapshot, fleet.now, host.number, user_groups)
    async with store.database.connection() as connection:
        groups = await _reasons(connection, fleet.snapshot, explained.waiting)
    return HostExplanation(
        manager_id=manager_id,
        manager_name=host.name,
        state=states.get(manager_id),
        waits=not explained.is_of_use,
        code=explained.doing[0].code,
        line=_line(host.name, fleet.snapshot, explained),
        change=None if explained.smallest is None else explained.smallest.line,
        groups=groups,
        more_groups=explained.more,
    )


async def idle_chain(store: Store, manager_id: UUID) -> tuple[str, ...]:
    """Return a line for each task group that waits, in the words of :func:`explain_manager`, and the change.

    It is empty unless the host could serve one and does not, and in large fleets.
    """
    async with store.database.connection() as connection:
        fleet = await fetch_one(connection, _Fleet, SQL["is_large"], {"most": MOST_HOSTS})
    if fleet is None or fleet.large:
        return ()
    try:
        explained = await explain_manager(store, manager_id)
    except NotFound:  # it is deleted
        return ()
    if not explained.waits:
        return ()
    lines = [f"{group.task_group_name}: {group.chain}" for group in explained.groups]
    if explained.more_groups:
        lines.append(f"{explained.more_groups} more task groups")
    if explained.change:
        lines.append(f"the smallest change: {explained.change}")
    return tuple(lines)


async def explain_manager_at(
    store: Store, manager_id: UUID, at: datetime, user_groups: Collection[str] | None = None
) -> HostExplanation:
    """Explain what the last decision before a time meant for a host.

    Raises:
        NotFound: there is no such host, or no such decision about it.
    """
    async with store.database.connection() as connection:
        host = await _host(connection, manager_id)
        decided = await decision_before(connection, at)
        if host.number not in decided.snapshot.hosts:
            raise NotFound(
                f"the decision of {shown(decided.at, at)} was not about this host: it was not in"
                " contact and had no lease",
                field="at",
            )
        explained = await _explained(decided.snapshot, decided.now, host.number, user_groups)
        groups = await _reasons(connection, decided.snapshot, explained.waiting)
    return HostExplanation(
        manager_id=manager_id,
        manager_name=decided.snapshot.hosts[host.number].fact.name,
        waits=not explained.is_of_use,
        code="decided",
        line=f"by the decision of {shown(decided.at, at)}: {_line(host.name, decided.snapshot, explained)}",
        change=None if explained.smallest is None else explained.smallest.line,
        groups=groups,
        more_groups=explained.more,
    )


async def _host(connection: Connection, manager_id: UUID) -> _Host:
    found = await fetch_one(connection, _Host, SQL["host"], {"manager": manager_id})
    return require_manager(found, manager_id)


async def _explained(
    snapshot: Snapshot, now: float, number: int, user_groups: Collection[str] | None
) -> ExplainedHost:
    def may_show(group: Group) -> bool:
        return user_groups is None or group.user_group_name in user_groups

    return await asyncio.to_thread(explain_host, snapshot, now, number, may_show)


def _line(name: str, snapshot: Snapshot, explained: ExplainedHost) -> str:
    """Return what the host does, and what a decision made now gives it to."""
    line = "; ".join(doing.line for doing in explained.doing)
    given = [
        snapshot.groups[number].fact.name
        for action in explained.gets
        if (number := action.group if isinstance(action, Offer) else action.for_group) is not None
    ]
    return f"{name} {line}" + (f"; about to be given to {', '.join(given)}" if given else "")


async def _reasons(
    connection: Connection, snapshot: Snapshot, waiting: Sequence[tuple[int, HostChain]]
) -> tuple[GroupReason, ...]:
    numbers = {"groups": [number for number, _ in waiting]}
    ids = {
        row.number: row.uuid
        for row in await fetch_all(connection, _GroupId, SQL["ids_of_groups"], numbers)
    }
    return tuple(
        _reason(ids[number], snapshot.groups[number].fact.name, chain)
        for number, chain in waiting
        if number in ids
    )


def _reason(group_id: UUID, name: str, chain: HostChain) -> GroupReason:
    obstacles = chain.obstacles
    first = obstacles[0] if obstacles else None
    return GroupReason(
        task_group_id=group_id,
        task_group_name=name,
        code="given" if first is None else first.code,
        line="is about to get it" if first is None else first.sentence,
        obstacles=tuple(Obstacle(code=step.code, line=step.sentence) for step in obstacles),
    )
