"""`explain`: the reasons for the state of a task group or a task, and for each host."""

from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.explain import Explanation, HostReason
from mitosis.contracts.ids import parse_task_uuid
from mitosis.store.leases.reasons import (
    Reason,
    Waiting,
    WaitingTask,
    host_reason,
    read_waiting,
    task_reason,
    why,
)
from mitosis.store.managers.views import manager_states
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_number
from mitosis.store.tasks.views import read_task

SQL = load("groups/explain.sql")


async def explain_group(store: Store, task_group_id: UUID) -> Explanation:
    """Explain the state of the group.

    Raises:
        NotFound: there is no such group.
    """
    async with store.database.connection() as connection:
        number = await group_number(connection, task_group_id)
        found = await read_waiting(connection, store, number)
        facts = require_task_group(found, task_group_id)
        hosts = await _hosts(connection, store, facts)
    return _explanation(facts, why(facts), facts.group.state, hosts)


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
        hosts = () if task.result is not None else await _hosts(connection, store, facts)
    return _explanation(facts, task_reason(task, why(facts)), shown.state, hosts, task_id)


async def _hosts(connection: Connection, store: Store, facts: Waiting) -> tuple[HostReason, ...]:
    ids = [host.manager_id for host in facts.hosts]
    states = await manager_states(connection, store, ids) if ids else {}
    reasons = [(host, host_reason(host, facts.group)) for host in facts.hosts]
    return tuple(
        HostReason(
            manager_id=host.manager_id,
            manager_name=host.name,
            state=states.get(host.manager_id),
            code=reason.code,
            line=reason.line,
        )
        for host, reason in reasons
    )


def _explanation(
    facts: Waiting,
    reason: Reason,
    state: str,
    hosts: tuple[HostReason, ...],
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
        hosts=hosts,
    )
