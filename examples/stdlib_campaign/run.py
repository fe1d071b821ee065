"""Runs the campaign on a running stack with the SDK and reports the results.

The hosts must be able to read this interpreter's standard library and to write the workspace, so the stack
must be on this host or share its file system.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from examples.stdlib_campaign.campaign import Campaign, modules
from mitosis.client.client import Client
from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec, TaskInfo
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.task import TaskSubmission

Progress = Callable[[TaskGroupInfo], None]
LOOK_AGAIN = timedelta(seconds=1)


class CampaignFailed(MitosisError):
    """The campaign did not end as expected."""

    code = "campaign_failed"


@dataclass(slots=True)
class Worker:
    """The work of one worker. ``cpus`` are the cores that the kernel confirmed."""

    tasks: int = 0
    cpus: tuple[int, ...] = ()
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The settled campaign. Times in seconds; ``rate`` in tasks per second of the task phase."""

    group: TaskGroupInfo
    submitted: int
    results: int
    setup_seconds: float
    task_seconds: float
    teardown_seconds: float
    total_seconds: float
    workers: dict[int, Worker] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.results / self.task_seconds if self.task_seconds else 0.0


async def run(
    client: Client, campaign: Campaign, name: str, workers: int, progress: Progress
) -> Report:
    """Create the group, submit one task per module, close, wait until it is settled, and compare ids.

    Raises:
        CampaignFailed: it did not end COMPLETE with success, or an id has not exactly one result.
    """
    group = await client.create_group(_spec(campaign, name, workers))
    key = group.task_group_id
    tasks = (TaskSubmission(command=campaign.command(module)) for module, _ in modules())
    submitted = await client.submit(key, tasks)
    await client.close_group(key, reason="every module is submitted")
    while not group.settled:
        group = await client.wait(key, until="settled", timeout=LOOK_AGAIN)
        progress(group)
    finished = [task async for task in client.tasks(key)]
    _check(group, submitted, finished)
    return _report(group, submitted, finished)


def _spec(campaign: Campaign, name: str, workers: int) -> TaskGroupSpec:
    return TaskGroupSpec(
        name=name,
        labels=frozenset({"example"}),
        worker_allocation_plan=WorkerAllocationPlan(
            worker_count=workers,
            cpu_binding=CpuBinding(strategy=CpuBindingStrategy.ROUND_ROBIN),
        ),
        environment_setup_hook=HookSpec(command=tuple(campaign.setup_command())),
        environment_teardown_hook=HookSpec(command=tuple(campaign.teardown_command())),
    )


def _check(group: TaskGroupInfo, submitted: list[int], finished: list[TaskInfo]) -> None:
    if group.state is not TaskGroupState.COMPLETE or group.result != "success":
        reasons = [f"{run.kind} hook: {run.message}" for run in group.hook_runs if run.message]
        reasons += [f"task {task.task_id}: {task.kind}" for task in finished if task.kind][:3]
        raise CampaignFailed(
            f"the group ended {group.state} with result {group.result}", reasons=reasons
        )
    with_result = [task.task_id for task in finished if task.finished_at is not None]
    if sorted(with_result) != sorted(submitted):
        raise CampaignFailed(
            f"{len(submitted)} tasks were submitted, {len(set(with_result))} of them have a result"
        )


def _report(group: TaskGroupInfo, submitted: list[int], finished: list[TaskInfo]) -> Report:
    workers: dict[int, Worker] = defaultdict(Worker)
    for task in finished:
        detail = task.detail or {}
        worker = workers[_number(detail.get("worker"))]
        worker.tasks += 1
        worker.cpus = _numbers(detail.get("cpus")) or worker.cpus
        usage = detail.get("usage")
        if isinstance(usage, dict):
            worker.cpu_seconds += usage.get("user_seconds", 0.0) + usage.get("system_seconds", 0.0)
    started = min(task.started_at for task in finished if task.started_at)
    ended = max(task.finished_at for task in finished if task.finished_at)
    return Report(
        group=group,
        submitted=len(submitted),
        results=len(finished),
        setup_seconds=_hook_seconds(group, "setup"),
        task_seconds=(ended - started).total_seconds(),
        teardown_seconds=_hook_seconds(group, "teardown"),
        total_seconds=(
            (group.settled_at or datetime.now(started.tzinfo)) - group.created_at
        ).total_seconds(),
        workers=dict(sorted(workers.items())),
    )


def _hook_seconds(group: TaskGroupInfo, kind: str) -> float:
    return sum(
        (run.finished_at - run.started_at).total_seconds()
        for run in group.hook_runs
        if run.kind == kind and run.finished_at
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(map(_number, value)) if isinstance(value, list) else ()
