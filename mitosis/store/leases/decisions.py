"""Records decisions with their inputs, and explains a task group by one of them, made again."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.explain import Explanation, HostReason, Obstacle
from mitosis.scheduling.actions import Offer
from mitosis.scheduling.explain import Explained, HostChain, explain_group
from mitosis.scheduling.record import recorded, restored
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.wording import names
from mitosis.store.leases.fleet_snapshot import Fleet
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/decisions.sql")
DECISIONS_KEPT = 500
HOSTS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class _Decision:
    decided_at: datetime
    inputs: bytes


@dataclass(frozen=True, slots=True)
class PastDecision:
    """The inputs of a decision that was recorded."""

    at: datetime
    snapshot: Snapshot
    now: float


@dataclass(frozen=True, slots=True)
class _Host:
    number: int
    uuid: UUID


async def record_decision(connection: Connection, fleet: Fleet) -> None:
    """Record the inputs of a decision in the transaction that carries it out; the oldest are forgotten."""
    values = {"inputs": recorded(fleet.snapshot, fleet.now), "kept": DECISIONS_KEPT}
    await connection.execute(SQL["record_decision"], values)


async def decision_before(connection: Connection, at: datetime) -> PastDecision:
    """Return the last decision before a time.

    Raises:
        NotFound: none of that time is kept.
    """
    found = await fetch_one(connection, _Decision, SQL["decision_at"], {"at": at})
    if found is None or found.decided_at > at:
        oldest = "none" if found is None else f"the oldest is of {shown(found.decided_at, at)}"
        raise NotFound(f"no decision before {shown(at, at)} is kept: {oldest}", field="at")
    snapshot, now = await asyncio.to_thread(restored, found.inputs)
    return PastDecision(found.decided_at, snapshot, now)


async def explain_decision(
    store: Store, task_group_id: UUID, number: int, at: datetime
) -> Explanation:
    """Make the last decision before a time again, and explain what it meant for a task group.

    Raises:
        NotFound: no decision of that time is kept, or the task group was not part of it.
    """
    async with store.database.connection() as connection:
        decided = await decision_before(connection, at)
        snapshot, now = decided.snapshot, decided.now
        if number not in snapshot.groups:
            raise NotFound(
                f"the decision of {shown(decided.at, at)} was not about this task group: it had"
                " neither unfinished tasks nor hosts",
                field="at",
            )
        explained = await asyncio.to_thread(explain_group, snapshot, now, number)
        chains = sorted(explained.chains, key=_obstacle_count)[:HOSTS_SHOWN]
        numbers = {"managers": [chain.host for chain in chains]}
        hosts = await fetch_all(connection, _Host, SQL["ids_of_hosts"], numbers)
    uuids = {host.number: host.uuid for host in hosts}
    group = snapshot.groups[number].fact
    gets = _given(snapshot, explained)
    return Explanation(
        task_group_id=task_group_id,
        task_group_name=group.name,
        state="decided",
        waits=not gets,
        code="decided",
        line=f"the decision of {shown(decided.at, at)} {gets or _nothing(snapshot, number)}",
        change=None if explained.smallest is None else explained.smallest.line,
        hosts=tuple(
            _reason(snapshot, explained, chain, uuids[chain.host])
            for chain in chains
            if chain.host in uuids
        ),
    )


def _obstacle_count(chain: HostChain) -> tuple[int, int]:
    return sum(not step.holds for step in chain.steps), chain.host


def shown(moment: datetime, like: datetime) -> str:
    """Return a time to the second, in the zone of the time that was asked about."""
    return moment.astimezone(like.tzinfo).isoformat(" ", "seconds")


def _given(snapshot: Snapshot, explained: Explained) -> str:
    """Return which hosts the task group was given; empty: none."""
    given = [action.host for action in explained.gets if isinstance(action, Offer)]
    freed = [action.host for action in explained.gets if not isinstance(action, Offer)]
    parts = []
    for hosts, text in ((given, "offered {} to it"), (freed, "took {} for it from another one")):
        if hosts:
            parts.append(text.format(names([snapshot.hosts[one].fact.name for one in hosts])))
    return " and ".join(parts)


def _nothing(snapshot: Snapshot, number: int) -> str:
    """Say that the decision gave no host to the task group, and how many it had before."""
    had = len(snapshot.groups[number].leases)
    hosts = "no host" if had == 0 else "1 host" if had == 1 else f"{had} hosts"
    return f"gave it no {'further ' if had else ''}host: it had {hosts}"


def _reason(
    snapshot: Snapshot, explained: Explained, chain: HostChain, manager_id: UUID
) -> HostReason:
    obstacles = [Obstacle(code=step.code, line=step.sentence) for step in chain.obstacles]
    given = any(gain.host == chain.host for gain in explained.gets)
    free = Obstacle(code="free", line="was given to it" if given else "could be given to it")
    first = obstacles[0] if obstacles else free
    return HostReason(
        manager_id=manager_id,
        manager_name=snapshot.hosts[chain.host].fact.name,
        code=first.code,
        line=first.line,
        obstacles=tuple(obstacles),
    )
