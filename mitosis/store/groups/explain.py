"""`explain`: the reasons of ``waiting.py`` over one consistent look at a group, or at one of its tasks."""

from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.explain import Explanation, HostReason
from mitosis.contracts.ids import parse_task_uuid
from mitosis.store.leases.reasons import Facts, Reason, host_reason, task_reason, why
from mitosis.store.pg.database import Database
from mitosis.store.pg.statements import load
from mitosis.store.tasks import task_views

GROUPS = load("groups/task_groups.sql")
TASKS = load("tasks/task_views.sql")


async def explain_group(database: Database, task_group_id: UUID) -> Explanation:
    """Why the group stands where it stands.

    Raises:
        NotFound: no such group.
    """
    group, facts = await _group(database, task_group_id)
    reason = why(group, facts)
    return _explanation(group, reason, str(group["state"]), _hosts(group, facts))


async def explain_task(database: Database, public_id: UUID) -> Explanation:
    """Why the task stands where it stands.

    Raises:
        NotFound: no such task.
    """
    task = await task_views.one(database, public_id)
    group, facts = await _group(database, task.task_group_id)
    number, task_id = parse_task_uuid(public_id)
    async with database.connection() as connection:
        values = {"group_number": number, "task": task_id}
        row = await (await connection.execute(TASKS["task_facts"], values)).fetchone()
    if row is None:
        raise NotFound("no such task", task_id=str(public_id))
    reason = task_reason(row, why(group, facts))
    hosts = [] if row["result"] is not None else _hosts(group, facts)
    return _explanation(group, reason, str(task.state), hosts, task_id)


async def _group(database: Database, task_group_id: UUID) -> tuple[Facts, Facts]:
    async with database.connection() as connection:
        cursor = await connection.execute(GROUPS["observe"], {"group": task_group_id})
        row = await cursor.fetchone()
        if row is None:
            raise NotFound("no such task group", task_group_id=str(task_group_id))
        cursor = await connection.execute(GROUPS["waiting_facts"], {"group_number": row["number"]})
        facts = await cursor.fetchone()
    if facts is None:
        raise NotFound("no such task group", task_group_id=str(task_group_id))
    return row, facts


def _hosts(group: Facts, facts: Facts) -> list[HostReason]:
    if group["settled"]:
        return []
    found = []
    for manager in facts["managers"]:
        reason = host_reason(manager, facts)
        found.append(
            HostReason(
                manager_id=manager["uuid"],
                manager_name=manager["name"],
                code=reason.code,
                line=reason.line,
            )
        )
    return found


def _explanation(
    group: Facts, reason: Reason, state: str, hosts: list[HostReason], task_id: int | None = None
) -> Explanation:
    return Explanation(
        task_group_id=group["task_group_id"],
        task_group_name=group["name"],
        task_id=task_id,
        state=state,
        waits=reason.waits,
        code=reason.code,
        line=reason.line,
        hosts=tuple(hosts),
    )
