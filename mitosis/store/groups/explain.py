"""`explain`: the reasons for the state of a task group or a task, and for each host."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.explain import Explanation, HostReason, Obstacle
from mitosis.contracts.failing_host import FailingHost
from mitosis.contracts.ids import parse_task_uuid
from mitosis.contracts.lifecycle import ManagerState
from mitosis.store.groups.decided_reasons import (
    NOTHING_DECIDED,
    Decided,
    decided_reasons,
    reason_of_host,
)
from mitosis.store.leases.decisions import explain_decision
from mitosis.store.leases.failing_host import explained_failing_host
from mitosis.store.leases.no_host_reasons import Reason
from mitosis.store.leases.reasons import (
    IDLE,
    AwaitedTask,
    WaitingTask,
    blocked_reason,
    host_reason,
    task_reason,
    why,
)
from mitosis.store.leases.waiting import Waiting, WaitingHost, read_waiting
from mitosis.store.managers.views import manager_states
from mitosis.store.missing import require_task_group
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_number
from mitosis.store.tasks.views import read_task

SQL = load("groups/explain.sql")
HOSTS_NAMED = 20
"""In Temporal's details: each of its lines is kept in the history of the workflow."""
ON_ITS_WAY = ("offered", "setup", "freed")
"""Reasons of a group whose host will begin its tasks: nothing needs to change."""
MOST_HOSTS = 1_000
"""In a larger fleet, Temporal's details do not name the smallest change."""


async def explain_group(store: Store, task_group_id: UUID) -> Explanation:
    """Explain the state of the group.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.connection() as connection:
        number = await group_number(connection, task_group_id)
        found = await read_waiting(connection, store, number)
        failing = await explained_failing_host(connection, store, number)
    facts = require_task_group(found, task_group_id)
    decided = await _decided(store, facts)
    hosts = await _hosts(store, facts, decided)
    reason = why(facts)
    change = _change(facts, reason, decided)
    if failing is not None:
        reason = replace(reason, line=f"{reason.line}; {failing.manager_name} {failing.line}")
        hosts = tuple(_with_failures(host, failing) for host in hosts)
    return _explanation(facts, reason, facts.group.state, hosts, change)


async def waiting_chain(store: Store, task_group_id: UUID) -> tuple[str, ...]:
    """Return a line for each host, in the words of :func:`explain_group`, and the smallest change.

    It is empty unless the group has tasks that wait for hosts.
    """
    async with store.database.connection() as connection:
        number = await group_number(connection, task_group_id)
        facts = await read_waiting(connection, store, number)
    if facts is None or not facts.group.goes_on or not facts.group.unfinished:
        return ()
    reason = why(facts)
    if not reason.waits or not facts.hosts:
        return ()
    decided = await decided_reasons(store, facts, most_hosts=MOST_HOSTS)
    named = facts.hosts[:HOSTS_NAMED]
    lines = [f"{host.name}: {_host(host, facts, decided).chain}" for host in named]
    if len(facts.hosts) > len(named):
        lines.append(f"{len(facts.hosts) - len(named)} more hosts: mitosis explain names 200")
    if change := _change(facts, reason, decided):
        lines.append(f"the smallest change: {change}")
    return tuple(lines)


async def explain_group_at(store: Store, task_group_id: UUID, at: datetime) -> Explanation:
    """Explain what the last decision before a time meant for the group.

    Raises:
        NotFound: there is no such group, or no such decision about it.
    """
    async with store.database.connection() as connection:
        number = await group_number(connection, task_group_id)
    return await explain_decision(store, task_group_id, number, at)


async def explain_task(store: Store, public_id: UUID) -> Explanation:
    """Explain the state of the task.

    Raises:
        NotFound: there is no such task.
    """
    shown = await read_task(store, public_id)
    number, task_id = parse_task_uuid(public_id)
    parameters = {
        "group_number": number,
        "task": task_id,
        "suspect_after": store.suspect_after.total_seconds(),
    }
    async with store.database.connection() as connection:
        task = await fetch_one(connection, WaitingTask, SQL["waiting_task"], parameters)
        facts = None if task is None else await read_waiting(connection, store, number)
        if task is None or facts is None:
            raise NotFound("no such task", task_id=str(public_id))
        if task.waits_for is not None and facts.group.goes_on:
            awaited = await fetch_all(connection, AwaitedTask, SQL["awaited_parents"], parameters)
            blocked = blocked_reason(task.waits_for, awaited)
            return _explanation(facts, blocked, shown.state, (), None, task_id)
    reason = task_reason(task, why(facts))
    if task.result is not None:
        return _explanation(facts, reason, shown.state, (), None, task_id)
    decided = await _decided(store, facts)
    hosts = await _hosts(store, facts, decided)
    change = None if task.claimed else _change(facts, reason, decided)
    return _explanation(facts, reason, shown.state, hosts, change, task_id)


async def _decided(store: Store, facts: Waiting) -> Decided:
    """Return what the decision says about a task group that goes on."""
    if not facts.group.goes_on:  # of services, too: hosts are decided about for no such group
        return NOTHING_DECIDED
    return await decided_reasons(store, facts)


def _change(facts: Waiting, reason: Reason, decided: Decided) -> str | None:
    """Return the smallest change; the decision knows only those that lead to another lease."""
    if reason.code in ON_ITS_WAY:
        return None
    if reason.code == "open" and any(host_reason(one, facts) == IDLE for one in facts.holders()):
        return f"submit 1 more task to {facts.group.name}"
    return decided.change if reason.waits else None


async def _hosts(store: Store, facts: Waiting, decided: Decided) -> tuple[HostReason, ...]:
    ids = [host.manager_id for host in facts.hosts]
    states: Mapping[UUID, ManagerState] = {}
    if ids:
        async with store.database.connection() as connection:
            states = await manager_states(connection, store, ids)
    return tuple(_host(host, facts, decided, states.get(host.manager_id)) for host in facts.hosts)


def _host(
    host: WaitingHost, facts: Waiting, decided: Decided, state: ManagerState | None = None
) -> HostReason:
    reason = reason_of_host(host, facts, decided)
    return HostReason(
        manager_id=host.manager_id,
        manager_name=host.name,
        state=state,
        code=reason.code,
        line=reason.line,
        obstacles=tuple(_obstacles(host, facts, decided)),
    )


def _with_failures(host: HostReason, failing: FailingHost) -> HostReason:
    """Add to the line of the failing host that it may be broken."""
    if host.manager_id != failing.manager_id:
        return host
    return host.model_copy(update={"line": f"{host.line}; {failing.line}"})


def _obstacles(host: WaitingHost, facts: Waiting, decided: Decided) -> Sequence[Obstacle]:
    """Return what keeps a host from the group; nothing does if it has a lease of it."""
    return () if facts.lease_state(host) is not None else decided.obstacles(host.number)


def _explanation(
    facts: Waiting,
    reason: Reason,
    state: str,
    hosts: tuple[HostReason, ...],
    change: str | None,
    task_id: int | None = None,
) -> Explanation:
    return Explanation(
        task_group_id=facts.group.task_group_id,
        task_group_name=facts.group.name,
        task_id=task_id,
        state=state,
        waits=reason.waits,
        code=reason.code,
        line=reason.line,
        change=change,
        hosts=hosts,
    )
