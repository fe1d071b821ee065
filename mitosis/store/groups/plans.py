"""Plans a task group: creates it in a transaction, decides over the present fleet, and takes all of it back.

So a plan is refused exactly where the creation would be, and its members are those that the group would have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

from mitosis.contracts.allocation import CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.plans import (
    PlanInfo,
    PlannedHostInfo,
    PlannedResources,
    PlanTaskGroup,
    SpanBand,
    TimeBand,
)
from mitosis.scheduling.bands import AT_ONCE, Band, Measured, exactly, measured_band
from mitosis.scheduling.facts import Work
from mitosis.scheduling.forecast import (
    Durations,
    GroupForecast,
    PlannedHost,
    forecast_group,
)
from mitosis.store.groups.definition import insert_group
from mitosis.store.leases.fleet import (
    GROUPS_OF_ROUND,
    HOSTS_BY_NUMBER,
    HOSTS_IN_CONTACT,
    ONE_GROUP,
    GroupRow,
    HostRow,
)
from mitosis.store.leases.fleet_snapshot import (
    Fleet,
    build_fleet,
    fact_parameters,
    read_clock,
)
from mitosis.store.leases.lease_terms import policy_of
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("groups/plans.sql")
LONGEST = timedelta(days=36_500)
"""A moment later than this is not shown."""


class _TakeBack(Exception):
    """Ends the transaction without an effect."""


@dataclass(frozen=True, slots=True)
class _Number:
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    number: int
    """Of the task group, while it exists."""
    fleet: Fleet
    listed: frozenset[int]
    """The numbers of the hosts that are shown."""
    durations: Durations
    runs: int


async def plan_group(store: Store, asked: PlanTaskGroup, user_id: UUID) -> PlanInfo:
    """Return what each host would do for a task group, and when it would begin and end. Changes nothing.

    Raises:
        NotFound, AlreadyExists, InvalidRequest: as ``create_group``.
    """
    planned: _Planned | None = None
    try:
        async with store.database.transaction() as connection:
            created = await insert_group(connection, store, asked.spec, user_id)
            planned = await _read(connection, store, created.id, asked)
            raise _TakeBack
    except _TakeBack:
        pass
    assert planned is not None  # noqa: S101 - it was read before the transaction ended
    group = planned.fleet.snapshot.groups[planned.number]
    known = planned.durations
    task = known.task.expected if known.task else None
    work = Work(
        ready=asked.tasks,
        unfinished=asked.tasks,
        tasks_measured=0 if task is None else asked.tasks,
        task_seconds=task or 0.0,
        setup_seconds=known.setup.expected or 0.0,
        teardown_seconds=known.teardown.expected or 0.0,
    )
    found = forecast_group(planned.fleet.snapshot, planned.fleet.now, group.fact, work, known)
    return _shown(asked, group.fact.user_group_name, planned, found)


async def _read(
    connection: Connection, store: Store, number: int, asked: PlanTaskGroup
) -> _Planned:
    """Read the fleet of the next round, the task group, and the hosts that may serve it at another time."""
    policy, clock = policy_of(store), await read_clock(connection)
    values = {**fact_parameters(store), "group_number": number}
    hosts = await fetch_all(connection, HostRow, HOSTS_IN_CONTACT, values)
    listed = await fetch_all(connection, _Number, SQL["hosts_of_plan"], values)
    away = {row.number for row in listed} - {host.number for host in hosts}
    if away:
        values["managers"] = sorted(away)
        hosts += await fetch_all(connection, HostRow, HOSTS_BY_NUMBER, values)
    values["hosts"] = max(1, min(len(hosts), policy.actions_per_round))
    groups = await fetch_all(connection, GroupRow, GROUPS_OF_ROUND, values)
    groups += await fetch_all(connection, GroupRow, ONE_GROUP, values)
    durations, runs = await _durations(connection, number, asked)
    return _Planned(
        number=number,
        fleet=build_fleet(policy, clock.now, hosts, groups),
        listed=frozenset(row.number for row in listed),
        durations=durations,
        runs=runs,
    )


async def _durations(
    connection: Connection, number: int, asked: PlanTaskGroup
) -> tuple[Durations, int]:
    """Return what is known about task groups with the same hooks, and on how many runs it rests."""

    async def means(statement: LiteralString) -> Sequence[Measured]:
        return await fetch_all(connection, Measured, statement, {"group_number": number})

    setups, teardowns = await means(SQL["setups"]), await means(SQL["teardowns"])
    tasks = [] if asked.task_duration is not None else await means(SQL["tasks"])
    given = asked.task_duration
    durations = Durations(
        setup=measured_band(setups) or _of_hook(asked.spec.environment_setup_hook),
        teardown=measured_band(teardowns) or _of_hook(asked.spec.environment_teardown_hook),
        task=measured_band(tasks) if given is None else exactly(given.total_seconds()),
    )
    return durations, sum(mean.runs for mean in (*setups, *tasks))


def _of_hook(hook: HookSpec | None) -> Band:
    """Return how long a hook takes that has never run: at most its timeout."""
    return AT_ONCE if hook is None else Band(0.0, None, hook.timeout.total_seconds())


def _shown(
    asked: PlanTaskGroup, group_name: str, planned: _Planned, found: GroupForecast
) -> PlanInfo:
    now = datetime.fromtimestamp(planned.fleet.now, UTC)
    plan = asked.spec.worker_allocation_plan
    hosts = [host for host in found.hosts if host.host in planned.listed]
    rows = planned.fleet.hosts
    smallest = found.smallest
    return PlanInfo(
        name=asked.spec.name,
        group_name=group_name,
        hosts=[
            _host(host, rows[host.host], plan.worker_count, now)
            for host in sorted(hosts, key=lambda host: host.obstacle is not None)
        ],
        begins=_moments(found.begins, now),
        ends=_moments(found.ends, now),
        setup=_spans(planned.durations.setup),
        teardown=_spans(planned.durations.teardown),
        task=_spans(planned.durations.task) if planned.durations.task else None,
        measured_runs=planned.runs,
        resources=_resources(asked.tasks, plan, hosts, found),
        smallest_change=None if smallest is None else smallest.line,
    )


def _resources(
    tasks: int, plan: WorkerAllocationPlan, hosts: Sequence[PlannedHost], found: GroupForecast
) -> PlannedResources:
    workers, binding = found.gets * plan.worker_count, plan.cpu_binding
    exclusive = binding is not None and binding.strategy is CpuBindingStrategy.EXCLUSIVE
    of_worker = (binding.cores_per_worker or 1) if binding is not None and exclusive else 0
    return PlannedResources(
        hosts=found.gets,
        useful_hosts=found.useful,
        able_hosts=sum(host.may_serve for host in hosts),
        workers=workers,
        cores=workers * of_worker if exclusive else None,
        tasks=tasks,
        host_time=_spans(found.host_time) if found.host_time else None,
    )


def _host(host: PlannedHost, row: HostRow, workers: int, now: datetime) -> PlannedHostInfo:
    gets = host.obstacle is None
    line = f"would start {workers} worker{'s' if workers > 1 else ''}"
    if gets and host.free_in != AT_ONCE:
        line = f"{line} when what runs there has ended"
    return PlannedHostInfo(
        manager_id=row.manager_id,
        name=row.name,
        gets=gets,
        code="gets" if host.obstacle is None else host.obstacle.code,
        line=line if host.obstacle is None else host.obstacle.sentence,
        workers=workers if gets else 0,
        free_at=_moments(host.free_in, now),
    )


def _spans(band: Band) -> SpanBand:
    least = _span(band.least)
    return SpanBand(
        least=LONGEST if least is None else least,
        expected=None if band.expected is None else _span(band.expected),
        most=_span(band.most),
    )


def _span(seconds: float) -> timedelta | None:
    if not math.isfinite(seconds) or seconds > LONGEST.total_seconds():
        return None
    return timedelta(seconds=seconds)


def _moments(band: Band | None, now: datetime) -> TimeBand | None:
    spans = None if band is None else _spans(band)
    if spans is None:
        return None
    return TimeBand(
        earliest=now + spans.least,
        expected=None if spans.expected is None else now + spans.expected,
        latest=None if spans.most is None else now + spans.most,
    )
