"""Worker services in the database of a test: registered, silent, drained, at work in a few words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mitosis.contracts.service_tasks import (
    ClaimNamedTasks,
    ClaimNamedTasksAnswer,
    HeldAttempt,
    NamedTaskAttempt,
    NamedTaskReport,
    RecordProgress,
    ReportNamedTasks,
    ReportNamedTasksAnswer,
    TaskProgress,
)
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import Outcome
from mitosis.contracts.worker_services import HeartbeatAnswer, HeldTask, RegisterWorker
from mitosis.store.registry.selection import NamedTask
from mitosis.store.services.claim import claim_named_tasks
from mitosis.store.services.contact import record_heartbeat, say_goodbye
from mitosis.store.services.progress import record_progress
from mitosis.store.services.registration import NewRegistration, register_worker
from mitosis.store.services.report import report_named_tasks
from tests.support.campaigns import World


def task(name: str = "resize", version: str = "1", **facts: Any) -> dict[str, Any]:
    """A supported task of the namespace ``images``."""
    return {"namespace": "images", "name": name, "version": version, **facts}


def named(name: str = "resize", version: str = "1", group: str = "alice") -> NamedTask:
    return NamedTask(group, "images", name, version)


async def registered(
    w: World, worker_id: str = "one", *tasks: dict[str, Any], **facts: Any
) -> "Service":
    """A service of alice that supports ``images/resize@1`` unless it is said; without a heartbeat."""
    spec = RegisterWorker.model_validate(
        {"worker_id": worker_id, "supported_tasks": tasks or (task(),), **facts}
    )
    return Service(w, worker_id, await register_worker(w.store, spec, w.user_id))


async def healthy(
    w: World, worker_id: str = "one", *tasks: dict[str, Any], **facts: Any
) -> "Service":
    """A registered service that has sent a heartbeat."""
    service = await registered(w, worker_id, *tasks, **facts)
    await service.heartbeat()
    return service


@dataclass
class Service:
    """One process of a worker service."""

    w: World
    worker_id: str
    made: NewRegistration
    held: dict[UUID, NamedTaskAttempt] = field(default_factory=dict)
    """What it knows that it executes."""

    async def heartbeat(self) -> HeartbeatAnswer:
        held = [HeldTask(task_id=one.task_id, attempt=one.attempt) for one in self.held.values()]
        return await record_heartbeat(
            self.w.store, self.made.worker_uuid, self.made.incarnation, held
        )

    async def ask(self, most: int = 100, *, wait: float = 0.0) -> ClaimNamedTasksAnswer:
        """One claim whose answer is lost, unless the caller uses it."""
        request = ClaimNamedTasks(
            incarnation=self.made.incarnation,
            held=tuple(
                HeldAttempt(task_id=one.task_id, attempt=one.attempt) for one in self.held.values()
            ),
            max_tasks=most,
            wait_seconds=wait,
        )
        return await claim_named_tasks(self.w.store, self.made.worker_uuid, request)

    async def claim(self, most: int = 100, *, wait: float = 0.0) -> Sequence[NamedTaskAttempt]:
        tasks = (await self.ask(most, wait=wait)).tasks
        self.held |= {one.task_id: one for one in tasks}
        return tasks

    async def report(
        self,
        *tasks: NamedTaskAttempt,
        outcome: Outcome = Outcome.SUCCEEDED,
        lose: bool = False,
        **facts: Any,
    ) -> ReportNamedTasksAnswer:
        """One report of these; with ``lose`` its answer never arrives."""
        reports = [
            NamedTaskReport(task_id=one.task_id, attempt=one.attempt, outcome=outcome, **facts)
            for one in tasks
        ]
        request = ReportNamedTasks(incarnation=self.made.incarnation, reports=reports)
        answer = await report_named_tasks(self.w.store, self.made.worker_uuid, request)
        if not lose:
            for one in tasks:
                self.held.pop(one.task_id, None)
        return answer

    async def says(self, task: NamedTaskAttempt, **facts: Any) -> str:
        """Record progress of one attempt; return the status."""
        one = TaskProgress(task_id=task.task_id, attempt=task.attempt, **facts)
        request = RecordProgress(incarnation=self.made.incarnation, progress=(one,))
        answer = await record_progress(self.w.store, self.made.worker_uuid, request)
        return answer.statuses[0].value

    async def goodbye(self, reason: str = "goodbye") -> None:
        await say_goodbye(self.w.store, self.made.worker_uuid, self.made.incarnation, reason)

    async def ago(self, seconds: float) -> None:
        """Move the times of the registration into the past."""
        await self.w.rows(
            "UPDATE worker_registrations SET registered_at = registered_at - d,"
            " last_heartbeat_at = last_heartbeat_at - d, alive_until = alive_until - d"
            " FROM make_interval(secs => %s) AS d WHERE id = %s",
            seconds,
            self.made.registration_id,
        )


async def service_group(w: World, name: str = "work", count: int = 0, **spec: Any) -> UUID:
    """A group of worker services, with so many tasks of ``images/resize@1``."""
    group = await w.group(name, kind="service", **spec)
    if count:
        await submit_named(w, group, count)
    return group


async def submit_named(
    w: World, group: UUID, count: int = 1, task_name: str = "images/resize@1", **fields: Any
) -> list[int]:
    tasks = [
        TaskSubmission(named_task=task_name, arguments={"number": i}, **fields)
        for i in range(count)
    ]
    return (await w.submit_tasks(group, tasks)).task_ids
