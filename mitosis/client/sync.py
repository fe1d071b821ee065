"""The SDK without async: :class:`SyncClient` runs the calls of :class:`~mitosis.client.client.Client`.

The calls run in an event loop in a separate thread. So a client may be used from any thread, even from one
with a running event loop, as in a notebook (the call blocks it).
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx2

from mitosis.client.client import Client
from mitosis.client.creating import GroupArgument
from mitosis.client.finding import find_target
from mitosis.client.job_calls import Definition, JobReference
from mitosis.client.loop_thread import LoopThread
from mitosis.client.port import Group, Until
from mitosis.client.submitting import Part, Tasks
from mitosis.client.sync_account_calls import SyncAccountCalls
from mitosis.client.sync_job_run import SyncRunCalls
from mitosis.client.sync_schedule_calls import SyncScheduleCalls
from mitosis.client.sync_task_group import (
    SubmitOptions,
    SyncTaskGroup,
    each_of,
    submit_from_here,
)
from mitosis.client.sync_worker_calls import SyncWorkerCalls
from mitosis.client.task_group import OnError, OnExit
from mitosis.client.template_calls import Template
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.explain import Explanation, HostExplanation
from mitosis.contracts.following import GroupEvent, OutputEvent
from mitosis.contracts.group_managers import RefreshedManagers
from mitosis.contracts.http import (
    GroupManagerInfo,
    ManagerInfo,
    Me,
    RegisteredManager,
    RegisterManager,
    ResultsPage,
    RetriedTasks,
    TaskGroupInfo,
    TaskGroupSpec,
    TaskGroupUpdate,
    TaskInfo,
    Token,
)
from mitosis.contracts.jobs import JobInfo, JobVersion
from mitosis.contracts.lifecycle import ListedState, TaskGroupState, TaskState
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.plans import PlanInfo
from mitosis.contracts.processes import LiveProcesses
from mitosis.contracts.retention import Retention
from mitosis.contracts.task_cancel import CancelledTask, CancelledTasks, TaskFilter
from mitosis.contracts.templates import TemplateInfo
from mitosis.contracts.wire import ReadOutputAnswer, SubmitAnswer

T = TypeVar("T")


class SyncClient(SyncWorkerCalls, SyncAccountCalls, SyncRunCalls, SyncScheduleCalls):
    """A synchronous :class:`~mitosis.client.client.Client`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: timedelta = timedelta(seconds=60),
        give_up_after: timedelta = timedelta(seconds=45),
        ca_file: Path | str | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Make a client with an event loop in a thread of its own.

        Args:
            url: of the API, without ``/api/v1``.
            token: of a user; None only for calls that need none.
            timeout: of one call.
            give_up_after: how long a call is repeated while the API is away.
            ca_file: file with the certificates to trust over https; None: those of the system.
            transport: of httpx2; None for TCP.
        """
        self._client = Client(
            url,
            token,
            timeout=timeout,
            give_up_after=give_up_after,
            ca_file=ca_file,
            transport=transport,
        )
        self._loop = LoopThread()

    @classmethod
    def connect(cls, **options: Any) -> Self:
        """Make a client of the API that the command line would use; takes the options of the constructor.

        Raises:
            ApiUnavailable: no address is set and no stack runs; names the command to run.
        """
        target = find_target()
        return cls(target.address, target.token, **{"ca_file": target.ca_file, **options})

    def task_group(
        self,
        group: GroupArgument = None,
        *,
        workers: int | None = None,
        on_exit: OnExit = "wait",
        on_error: OnError = "cancel",
        patience: timedelta = timedelta(minutes=10),
    ) -> SyncTaskGroup:
        """Return the group of :meth:`.Client.task_group` for a ``with`` block."""
        made = self._client.task_group(
            group, workers=workers, on_exit=on_exit, on_error=on_error, patience=patience
        )
        return SyncTaskGroup(self._loop, made)

    def login(self, username: str, password: str) -> Token:
        return self._loop.run(self._client.login(username, password))

    def me(self) -> Me:
        return self._loop.run(self._client.me())

    def processes(self) -> LiveProcesses:
        return self._loop.run(self._client.processes())

    def retention(self) -> Retention:
        return self._loop.run(self._client.retention())

    def create_group(self, spec: TaskGroupSpec) -> TaskGroupInfo:
        return self._loop.run(self._client.create_group(spec))

    def plan_group(
        self, spec: TaskGroupSpec, *, tasks: int = 1, task_duration: timedelta | None = None
    ) -> PlanInfo:
        return self._loop.run(
            self._client.plan_group(spec, tasks=tasks, task_duration=task_duration)
        )

    def group(self, group: Group) -> TaskGroupInfo:
        return self._loop.run(self._client.group(group))

    def groups(
        self,
        *,
        state: TaskGroupState | None = None,
        tag: str | None = None,
        label: str | None = None,
        name: str | None = None,
        settled: bool | None = None,
    ) -> Iterator[TaskGroupInfo]:
        return self._each(
            self._client.groups(state=state, tag=tag, label=label, name=name, settled=settled)
        )

    def update_group(self, group: Group, update: TaskGroupUpdate) -> TaskGroupInfo:
        return self._loop.run(self._client.update_group(group, update))

    def delete_group(
        self,
        group: Group,
        *,
        force: bool = False,
        grace: timedelta | None = None,
        reason: str | None = None,
    ) -> TaskGroupInfo | None:
        return self._loop.run(
            self._client.delete_group(group, force=force, grace=grace, reason=reason)
        )

    def close_group(self, group: Group, *, reason: str | None = None) -> TaskGroupInfo:
        return self._loop.run(self._client.close_group(group, reason=reason))

    def reopen(self, group: Group, *, reason: str | None = None) -> TaskGroupInfo:
        return self._loop.run(self._client.reopen(group, reason=reason))

    def cancel(
        self,
        group: Group,
        *,
        reason: str | None = None,
        cancel_running_tasks: bool = True,
        grace: timedelta | None = None,
    ) -> TaskGroupInfo:
        return self._loop.run(
            self._client.cancel(
                group, reason=reason, cancel_running_tasks=cancel_running_tasks, grace=grace
            )
        )

    def complete(
        self,
        group: Group,
        *,
        force: bool = False,
        reason: str | None = None,
        grace: timedelta | None = None,
    ) -> TaskGroupInfo:
        return self._loop.run(self._client.complete(group, force=force, reason=reason, grace=grace))

    def wait(
        self, group: Group, *, until: Until = "settled", timeout: timedelta | None = None
    ) -> TaskGroupInfo:
        return self._loop.run(self._client.wait(group, until=until, timeout=timeout))

    def submit(
        self,
        group: Group,
        tasks: Tasks,
        *,
        idempotency_key: str | None = None,
        require_worker: bool = False,
    ) -> list[int]:
        """Submit tasks; they are read in the calling thread."""
        how = SubmitOptions(idempotency_key=idempotency_key, require_worker=require_worker)
        return submit_from_here(self._loop, self._client, group, tasks, how)

    def submit_part(self, group: Group, part: Part) -> SubmitAnswer:
        return self._loop.run(self._client.submit_part(group, part))

    def tasks(
        self, group: Group, *, state: TaskState | ListedState | None = None
    ) -> Iterator[TaskInfo]:
        return self._each(self._client.tasks(group, state=state))

    def results(self, group: Group, *, after: int = 0) -> Iterator[TaskInfo]:
        return self._each(self._client.results(group, after=after))

    def results_page(
        self, group: Group, *, after: int = 0, wait: timedelta = timedelta()
    ) -> ResultsPage:
        return self._loop.run(self._client.results_page(group, after=after, wait=wait))

    def events(
        self,
        group: Group,
        *,
        after: int = 0,
        results: bool = True,
        on_outage: Callable[[MitosisError], None] = lambda _: None,
    ) -> Iterator[GroupEvent]:
        """``on_outage`` is called in the thread of the connections."""
        return self._each(
            self._client.events(group, after=after, results=results, on_outage=on_outage)
        )

    def retry(
        self,
        group: Group,
        *,
        into: Group | None = None,
        reasons: Sequence[FailureKind] = (),
        cancelled: bool = False,
        dry_run: bool = False,
    ) -> RetriedTasks:
        return self._loop.run(
            self._client.retry(
                group, into=into, reasons=reasons, cancelled=cancelled, dry_run=dry_run
            )
        )

    def cancel_task(
        self, task_uuid: UUID, *, reason: str | None = None, grace: timedelta | None = None
    ) -> CancelledTask:
        return self._loop.run(self._client.cancel_task(task_uuid, reason=reason, grace=grace))

    def cancel_tasks(
        self,
        group: Group,
        tasks: Sequence[int] | TaskFilter | Mapping[str, Any],
        *,
        reason: str | None = None,
        grace: timedelta | None = None,
        dry_run: bool = False,
    ) -> CancelledTasks:
        return self._loop.run(
            self._client.cancel_tasks(group, tasks, reason=reason, grace=grace, dry_run=dry_run)
        )

    def explain(self, group: Group, *, at: datetime | None = None) -> Explanation:
        return self._loop.run(self._client.explain(group, at=at))

    def explain_task(self, task_uuid: UUID) -> Explanation:
        return self._loop.run(self._client.explain_task(task_uuid))

    def explain_manager(self, manager_id: UUID, *, at: datetime | None = None) -> HostExplanation:
        return self._loop.run(self._client.explain_manager(manager_id, at=at))

    def task_output(
        self, task_uuid: UUID, *, patience: timedelta | None = None
    ) -> Iterator[OutputEvent]:
        return self._each(self._client.task_output(task_uuid, patience=patience))

    def group_output(
        self, group: Group, *, after: int = 0, patience: timedelta | None = None
    ) -> Iterator[OutputEvent]:
        return self._each(self._client.group_output(group, after=after, patience=patience))

    def read_output(
        self, group: Group, reader: UUID, *, after: int = 0, wait_seconds: float = 0.0
    ) -> ReadOutputAnswer:
        return self._loop.run(
            self._client.read_output(group, reader, after=after, wait_seconds=wait_seconds)
        )

    def task(self, task_uuid: UUID) -> TaskInfo:
        return self._loop.run(self._client.task(task_uuid))

    def save_template(
        self,
        name: str,
        spec: Mapping[str, Any] | None = None,
        *,
        task_group: Group | None = None,
        group_name: str | None = None,
        replace: bool = False,
    ) -> TemplateInfo:
        return self._loop.run(
            self._client.save_template(
                name, spec, task_group=task_group, group_name=group_name, replace=replace
            )
        )

    def templates(self) -> Iterator[TemplateInfo]:
        return self._each(self._client.templates())

    def template(self, template: Template) -> TemplateInfo:
        return self._loop.run(self._client.template(template))

    def create_from_template(
        self,
        template: Template,
        name: str,
        overrides: Mapping[str, Any] | None = None,
        *,
        group_name: str | None = None,
    ) -> TaskGroupInfo:
        return self._loop.run(
            self._client.create_from_template(template, name, overrides, group_name=group_name)
        )

    def delete_template(self, template: Template) -> None:
        self._loop.run(self._client.delete_template(template))

    def define_job(self, definition: Definition, *, group_name: str | None = None) -> JobVersion:
        return self._loop.run(self._client.define_job(definition, group_name=group_name))

    def jobs(self) -> Iterator[JobInfo]:
        return self._each(self._client.jobs())

    def job(self, job: JobReference, *, version: int | None = None) -> JobVersion:
        return self._loop.run(self._client.job(job, version=version))

    def job_versions(self, job: JobReference) -> Iterator[JobInfo]:
        return self._each(self._client.job_versions(job))

    def delete_job(self, job: JobReference) -> None:
        self._loop.run(self._client.delete_job(job))

    def register_manager(self, manager: RegisterManager) -> RegisteredManager:
        return self._loop.run(self._client.register_manager(manager))

    def managers(self) -> Iterator[ManagerInfo]:
        return self._each(self._client.managers())

    def manager(self, manager_id: UUID) -> ManagerInfo:
        return self._loop.run(self._client.manager(manager_id))

    def retry_setup(self, manager_id: UUID, group: Group | None = None) -> list[str]:
        return self._loop.run(self._client.retry_setup(manager_id, group))

    def release_quarantine(self, manager_id: UUID, group: Group | None = None) -> list[str]:
        return self._loop.run(self._client.release_quarantine(manager_id, group))

    def drain_manager(
        self, manager_id: UUID, *, now: bool = False, reason: str | None = None
    ) -> ManagerInfo:
        return self._loop.run(self._client.drain_manager(manager_id, now=now, reason=reason))

    def wait_until_empty(
        self, manager_id: UUID, *, timeout: timedelta | None = None
    ) -> ManagerInfo:
        return self._loop.run(self._client.wait_until_empty(manager_id, timeout=timeout))

    def resume_manager(self, manager_id: UUID) -> ManagerInfo:
        return self._loop.run(self._client.resume_manager(manager_id))

    def update_manager(
        self,
        manager_id: UUID,
        *,
        name: str | None = None,
        tags: Iterable[str] | None = None,
        labels: Iterable[str] | None = None,
    ) -> ManagerInfo:
        return self._loop.run(
            self._client.update_manager(manager_id, name=name, tags=tags, labels=labels)
        )

    def delete_manager(self, manager_id: UUID, *, force: bool = False) -> None:
        self._loop.run(self._client.delete_manager(manager_id, force=force))

    def group_managers(self, group: Group) -> list[GroupManagerInfo]:
        return self._loop.run(self._client.group_managers(group))

    def add_managers(self, group: Group, manager_ids: Sequence[UUID]) -> None:
        self._loop.run(self._client.add_managers(group, manager_ids))

    def remove_managers(self, group: Group, manager_ids: Sequence[UUID]) -> None:
        self._loop.run(self._client.remove_managers(group, manager_ids))

    def refresh_managers(self, group: Group) -> RefreshedManagers:
        return self._loop.run(self._client.refresh_managers(group))

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        self._loop.run(self._client.aclose())
        self._loop.close()

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        return each_of(self._loop, items)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
