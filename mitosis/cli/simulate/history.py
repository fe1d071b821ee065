"""Makes a workload for `mitosis simulate` from the hosts, task groups and results of a deployment."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from mitosis.scheduling.simulation.workload import (
    GroupRecord,
    HostRecord,
    TasksRecord,
    Workload,
)

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import ManagerInfo, TaskGroupInfo, TaskInfo

SECONDS_TOGETHER = 1.0
"""Tasks submitted within so many seconds count as submitted together."""


def recorded(client: "SyncClient", since: datetime, now: datetime) -> Workload:
    """Return the workload of the task groups that were created since a time.

    Tasks that have not ended, or never started, are left out, and so are absences and drains of hosts: there
    is no record of them.
    """
    hosts = {host.manager_id: host for host in client.managers()}
    names = _host_names(list(hosts.values()))
    groups: list[GroupRecord] = []
    tasks: list[TasksRecord] = []
    for listed in client.groups():
        if listed.created_at < since:
            continue
        group = client.group(listed.task_group_id)
        members = [
            names[member.manager_id]
            for member in client.group_managers(group.task_group_id)
            if member.manager_id in names
        ]
        name = f"{group.group_name}/{group.name}/{group.task_group_id}"
        groups.append(_group(group, name, members, since))
        tasks += _batches(name, _results(client, group), since)
    return Workload(
        until=(now - since).total_seconds(),
        hosts=[
            HostRecord(name=names[number], user_groups=host.groups)
            for number, host in hosts.items()
        ],
        groups=groups,
        tasks=tasks,
    )


def _host_names(hosts: Sequence["ManagerInfo"]) -> dict[object, str]:
    """Return a name for each host: its own, and its id as well where another one has the same."""
    counts: defaultdict[str, int] = defaultdict(int)
    for host in hosts:
        counts[host.name] += 1
    return {
        host.manager_id: host.name if counts[host.name] == 1 else f"{host.name}/{host.manager_id}"
        for host in hosts
    }


def _group(group: "TaskGroupInfo", name: str, members: list[str], since: datetime) -> GroupRecord:
    closed = group.closed_at
    return GroupRecord(
        name=name,
        user_group=group.group_name,
        at=_after(since, group.created_at),
        closed_at=_after(since, closed or datetime.now(UTC)),
        priority=group.priority,
        workers=group.worker_allocation_plan.worker_count,
        hosts=members,
        max_managers=group.max_managers,
        setup_seconds=_mean_seconds(group, "setup"),
        teardown_seconds=_mean_seconds(group, "teardown"),
    )


def _mean_seconds(group: "TaskGroupInfo", kind: Literal["setup", "teardown"]) -> float:
    spans = [
        (run.finished_at - run.started_at).total_seconds()
        for run in group.hook_runs
        if run.kind == kind and run.finished_at is not None and run.state != "interrupted"
    ]
    return sum(spans) / len(spans) if spans else 0.0


def _results(client: "SyncClient", group: "TaskGroupInfo") -> Iterator["TaskInfo"]:
    """Yield the tasks that have ended, without waiting for others."""
    after = 0
    while items := (page := client.results_page(group.task_group_id, after=after)).items:
        yield from items
        after = page.after


def _batches(name: str, results: Iterator["TaskInfo"], since: datetime) -> Iterator[TasksRecord]:
    """Yield the tasks that ran, together those that were submitted together."""
    together: defaultdict[float, list[tuple[int, float]]] = defaultdict(list)
    for task in results:
        if task.started_at is None or task.finished_at is None:
            continue
        at = _after(since, task.created_at) // SECONDS_TOGETHER * SECONDS_TOGETHER
        seconds = max((task.finished_at - task.started_at).total_seconds(), 0.0)
        together[at].append((task.task_id, round(seconds, 3)))
    for at, tasks in sorted(together.items()):
        yield TasksRecord(group=name, at=at, seconds=[seconds for _, seconds in sorted(tasks)])


def _after(since: datetime, at: datetime) -> float:
    return max((at - since).total_seconds(), 0.0)
