"""What a new or changed task group says, checked beyond its types and laid out as columns."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from mitosis.contracts.allocation import worker_cpus
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskGroupSpec, TaskGroupUpdate
from mitosis.store.leases.eligibility import plan_mismatch
from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load

SQL = load("groups/task_groups.sql")


def check_plan(spec: TaskGroupSpec) -> None:
    """Refuse a plan that contradicts itself on every host.

    Raises:
        InvalidRequest: more exclusive workers than listed cores.
    """
    plan = spec.worker_allocation_plan
    if plan.cpu_binding is not None and plan.cpu_binding.cores is not None:
        worker_cpus(plan, plan.cpu_binding.cores)


async def check_hosts(connection: Connection, group_number: int, spec: TaskGroupSpec) -> None:
    """Refuse a plan that no known host can hold; hosts may come later, so none at all is no reason.

    Raises:
        InvalidRequest: with the reason of the first host.
    """
    rows = await connection.execute(SQL["hosts_of_group"], {"group_number": group_number})
    reasons = [
        (row["name"], plan_mismatch(spec.worker_allocation_plan, row["cores"]))
        for row in await rows.fetchall()
    ]
    if reasons and all(mismatch is not None for _, mismatch in reasons):
        name, mismatch = reasons[0]
        raise InvalidRequest(
            f"{name} cannot serve it: {mismatch}",
            field="worker_allocation_plan",
            hosts=len(reasons),
        )


def row(spec: TaskGroupSpec, user_id: UUID) -> dict[str, Any]:
    """The parameters of ``create``."""
    setup, teardown = spec.environment_setup_hook, spec.environment_teardown_hook
    return {
        "name": spec.name,
        "group_name": spec.group_name,
        "user": user_id,
        "tags": sorted(spec.tags),
        "labels": sorted(spec.labels),
        "tag_match": spec.tag_match,
        "priority": spec.priority,
        "plan": spec.worker_allocation_plan.model_dump_json(),
        "setup": setup and setup.model_dump_json(),
        "teardown": teardown and teardown.model_dump_json(),
        "auto_close": _seconds(spec.auto_close_timeout),
        "close_deadline": spec.close_deadline,
        "max_managers": spec.max_managers,
        "assignment_method": spec.assignment_method,
        "reopen_on_submit": spec.reopen_on_submit,
        "cancel_grace": spec.cancel_grace_seconds,
        "host_lost_after": _seconds(spec.host_lost_after),
        "fence": spec.fence,
    }


def changed(changes: TaskGroupUpdate, group_number: int) -> dict[str, Any]:
    """The parameters of ``update``: None leaves a column as it is, where NULL is no value of it.

    Auto-close and max_managers may be taken away, so there it counts whether they were given.
    """
    return {
        "group_number": group_number,
        "tags": None if changes.tags is None else sorted(changes.tags),
        "labels": None if changes.labels is None else sorted(changes.labels),
        "priority": changes.priority,
        "sets_auto_close": "auto_close_timeout" in changes.model_fields_set,
        "auto_close": _seconds(changes.auto_close_timeout),
        "sets_max_managers": "max_managers" in changes.model_fields_set,
        "max_managers": changes.max_managers,
        "expected": changes.expected_updated_at,
    }


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
