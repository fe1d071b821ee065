"""Creates, changes and finds task groups."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from psycopg.errors import UniqueViolation

from mitosis.contracts.allocation import CpuBindingStrategy, WorkerAllocationPlan, worker_cpus
from mitosis.contracts.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec, TaskGroupUpdate
from mitosis.contracts.lifecycle import TASK_GROUP
from mitosis.scheduling.binding import binding_mismatch
from mitosis.store.groups.assignment import name_managers
from mitosis.store.groups.endings import LiveGroup, lock_live, notify_group
from mitosis.store.groups.kinds import check_fields_of_kind
from mitosis.store.groups.required_host import require_host
from mitosis.store.groups.views import read_group
from mitosis.store.leases.lease_terms import save_settings
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.processes.live import require_group_kind
from mitosis.store.store import Store

SQL = load("groups/definition.sql")


@dataclass(frozen=True, slots=True)
class CreatedGroup:
    """A new task group: its number and its id."""

    id: int
    uuid: UUID


@dataclass(frozen=True, slots=True)
class _HostCores:
    name: str
    cores: list[int]


@dataclass(frozen=True, slots=True)
class _Found:
    uuid: UUID


async def create_group(store: Store, spec: TaskGroupSpec, user_id: UUID) -> TaskGroupInfo:
    """Create an OPEN group with its pokes: the outbox starts its workflow.

    The caller has checked that the user may write to ``spec.group_name``.

    Raises:
        NotFound: there is no such user group or manager.
        AlreadyExists: the name is taken in that user group.
        InvalidRequest: the plan cannot hold on any host (more exclusive workers than cores listed),
            or on none of those that work for the user group now.
    """
    async with store.database.transaction() as connection:
        created = await insert_group(connection, store, spec, user_id)
    return await read_group(store, created.uuid)


async def insert_group(
    connection: Connection, store: Store, spec: TaskGroupSpec, user_id: UUID
) -> CreatedGroup:
    """Create a group in the caller's transaction.

    Raises:
        NotFound, AlreadyExists, InvalidRequest: as :func:`create_group`. The transaction cannot go on.
        UpgradeInProgress: a process that runs does not know groups of this kind.
    """
    check_fields_of_kind(spec.kind, spec)
    check_plan(spec.worker_allocation_plan)
    await require_group_kind(connection, spec.kind)
    try:
        created = await fetch_one(
            connection, CreatedGroup, SQL["create"], _create_parameters(spec, user_id)
        )
    except UniqueViolation as error:
        raise AlreadyExists(
            f"the user group has a task group called {spec.name}", field="name"
        ) from error
    if created is None:
        raise NotFound("no such user group", field="group_name")
    await _check_hosts(connection, created.id, spec.worker_allocation_plan)
    await name_managers(connection, created.id, spec.manager_ids, user_id)
    if spec.require_host:
        await require_host(connection, created.id, spec)
    if spec.lease_settings.model_fields_set:
        await save_settings(connection, store, created.id, spec.lease_settings)
    return created


async def find_group(store: Store, reference: str) -> UUID:
    """Return the id behind a UUID or ``USERGROUP/NAME``.

    Raises:
        NotFound: there is no such group.
    """
    group_name, slash, name = reference.partition("/")
    if not slash:
        try:
            return UUID(reference)
        except ValueError:
            raise NotFound(
                f"{reference!r} is neither an id nor USERGROUP/NAME of a task group"
            ) from None
    async with store.database.connection() as connection:
        parameters = {"group_name": group_name, "name": name}
        found = await fetch_one(connection, _Found, SQL["find"], parameters)
    return require_task_group(found, reference).uuid


async def update_group(
    store: Store, task_group_id: UUID, changes: TaskGroupUpdate
) -> TaskGroupInfo:
    """Change the fields that are given; a limit given as None is removed. The workflow resets its timer.

    Raises:
        NotFound: there is no such group.
        Conflict: it was changed since ``expected_updated_at``, it is terminal, or a cancel is in progress
            and keeps its grace.
        InvalidRequest: the plan cannot hold on any host, as for :func:`create_group`.
    """
    plan = changes.worker_allocation_plan
    if plan is not None:
        check_plan(plan)
    async with store.database.transaction() as connection:
        live = await lock_live(connection, task_group_id)
        check_fields_of_kind(live.kind, changes)
        _check_changeable(live, changes)
        if plan is not None:
            await _check_hosts(connection, live.number, plan)
        parameters = _update_parameters(changes, live.number)
        updated = await connection.execute(SQL["update"], parameters)
        if updated.rowcount == 0:
            raise Conflict("the task group was changed by another request; read it and try again")
        if changes.lease_settings is not None:
            await save_settings(connection, store, live.number, changes.lease_settings)
        await notify_group(connection, live.number, scheduler=True)
    return await read_group(store, task_group_id)


def _check_changeable(live: LiveGroup, changes: TaskGroupUpdate) -> None:
    """Check that the changes can still have an effect.

    Raises:
        Conflict: they cannot.
    """
    ended = live.state in TASK_GROUP.terminal
    if changes.cancel_grace_seconds is not None and (ended or live.discarding):
        raise Conflict(
            f"the task group is {live.state if ended else 'being completed by force'}: its running tasks"
            " keep the grace that its end began with",
            state=live.state.value,
            field="cancel_grace_seconds",
        )
    if ended:
        raise Conflict(f"the task group is {live.state}", state=live.state.value)


def check_plan(plan: WorkerAllocationPlan) -> None:
    """Refuse a plan that cannot work on any host.

    Raises:
        InvalidRequest: more exclusive workers than listed cores, or a field that would have no effect.
    """
    binding = plan.cpu_binding
    if binding is None:
        return
    if (
        binding.cores_per_worker is not None
        and binding.strategy is not CpuBindingStrategy.EXCLUSIVE
    ):
        raise InvalidRequest(
            f"only exclusive workers have a number of cores of their own, not {binding.strategy} ones",
            field="worker_allocation_plan.cpu_binding.cores_per_worker",
        )
    if binding.cores is not None:
        worker_cpus(plan, binding.cores)


async def _check_hosts(
    connection: Connection, group_number: int, plan: WorkerAllocationPlan
) -> None:
    """Refuse a plan that no known host can hold. Without known hosts any plan passes.

    Raises:
        InvalidRequest: with the reason of the first host.
    """
    parameters = {"group_number": group_number}
    hosts = await fetch_all(connection, _HostCores, SQL["hosts_of_group"], parameters)
    count, binding = plan.worker_count, plan.cpu_binding
    reasons = [binding_mismatch(count, binding, tuple(host.cores)) for host in hosts]
    if reasons and all(reason is not None for reason in reasons):
        raise InvalidRequest(
            f"{hosts[0].name} cannot serve it: {reasons[0]}",
            field="worker_allocation_plan",
            hosts=len(hosts),
        )


def _create_parameters(spec: TaskGroupSpec, user_id: UUID) -> dict[str, object]:
    setup, teardown = spec.environment_setup_hook, spec.environment_teardown_hook
    probe = spec.environment_probe
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
        "probe": probe and probe.model_dump_json(),
        "auto_close": _seconds(spec.auto_close_timeout),
        "close_deadline": spec.close_deadline,
        "max_managers": spec.max_managers,
        "assignment_method": spec.assignment_method,
        "reopen_on_submit": spec.reopen_on_submit,
        "cancel_grace": spec.cancel_grace_seconds,
        "host_lost_after": _seconds(spec.host_lost_after),
        "fence": spec.fence,
        "on_setup_failure": spec.on_setup_failure,
        "kind": spec.kind,
        "preference_seconds": spec.preference_seconds,
    }


def _update_parameters(changes: TaskGroupUpdate, group_number: int) -> dict[str, object]:
    """Return the parameters of ``update``: None leaves a column as it is, where NULL is not a value of it.

    Auto-close and max_managers can be removed, so for them it counts whether they were given.
    """
    plan = changes.worker_allocation_plan
    return {
        "group_number": group_number,
        "tags": None if changes.tags is None else sorted(changes.tags),
        "labels": None if changes.labels is None else sorted(changes.labels),
        "tag_match": changes.tag_match,
        "priority": changes.priority,
        "plan": plan and plan.model_dump_json(),
        "cancel_grace": changes.cancel_grace_seconds,
        "reopen_on_submit": changes.reopen_on_submit,
        "on_setup_failure": changes.on_setup_failure,
        "sets_auto_close": "auto_close_timeout" in changes.model_fields_set,
        "auto_close": _seconds(changes.auto_close_timeout),
        "sets_max_managers": "max_managers" in changes.model_fields_set,
        "max_managers": changes.max_managers,
        "expected": changes.expected_updated_at,
    }


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
