"""The SDK: task groups, tasks and managers over the HTTP API. Async; ``sync.py`` is the synchronous version.

Every method raises the class of :mod:`mitosis.contracts.errors` that the API's answer names. Calls that may
be repeated are retried for up to ``give_up_after`` while the API, PostgreSQL or Temporal is unavailable.
"""

import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from copy import copy
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar, get_args
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from mitosis.client.account_calls import AccountCalls
from mitosis.client.cancel_calls import CancelCalls
from mitosis.client.connection import Params
from mitosis.client.creating import GroupArgument, planned
from mitosis.client.finding import find_target
from mitosis.client.following import follow
from mitosis.client.host_calls import HostCalls
from mitosis.client.output_calls import OutputCalls, task_path
from mitosis.client.parameters import (
    check_tasks,
    choice,
    duration,
    grace_seconds,
    group_reference,
    identifier,
    model,
    query,
)
from mitosis.client.plan_calls import PlanCalls
from mitosis.client.port import Group, Until, path_of, reached
from mitosis.client.process_calls import ProcessCalls
from mitosis.client.repeated_calls import PAGE
from mitosis.client.schedule_calls import ScheduleCalls
from mitosis.client.submitting import Part, Tasks, parts_of, submit_parts
from mitosis.client.task_group import OnError, OnExit, TaskGroup
from mitosis.client.template_calls import TemplateCalls
from mitosis.client.worker_calls import WorkerCalls
from mitosis.contracts.checking import checked, shown
from mitosis.contracts.errors import InvalidRequest, MitosisError
from mitosis.contracts.explain import Explanation
from mitosis.contracts.following import GroupEvent
from mitosis.contracts.group_managers import NamedManagers, RefreshedManagers
from mitosis.contracts.http import (
    MAX_WAIT_SECONDS,
    CancelBody,
    CompleteBody,
    GroupManagerInfo,
    LiftedFailures,
    LiftFailures,
    ManagerInfo,
    Page,
    RegisteredManager,
    RegisterManager,
    ResultsPage,
    RetriedTasks,
    RetryBody,
    TaskGroupInfo,
    TaskGroupSpec,
    TaskGroupUpdate,
    TaskInfo,
    VerbBody,
)
from mitosis.contracts.lifecycle import ListedState, TaskGroupState, TaskState
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.queries import (
    DeleteGroupQuery,
    EventsQuery,
    GroupsQuery,
    ResultsQuery,
    TasksQuery,
)
from mitosis.contracts.wire import SubmissionKey, SubmitAnswer

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

LONG_POLL = timedelta(seconds=30)
_MANAGERS = TypeAdapter(list[GroupManagerInfo])


class Client(
    OutputCalls,
    CancelCalls,
    HostCalls,
    PlanCalls,
    TemplateCalls,
    ScheduleCalls,
    ProcessCalls,
    WorkerCalls,
    AccountCalls,
):
    """A client of one API for one user. An async context manager; for one event loop only."""

    @classmethod
    def connect(cls, **options: Any) -> Self:
        """Return a client of the API that the command line would use, with its token.

        That is ``MITOSIS_API_URL`` with ``MITOSIS_TOKEN`` (or ``MITOSIS_TOKEN_FILE``, or the token that
        `mitosis login` stored), else the API of the configuration file, else the stack that `mitosis up`
        runs on this machine. ``options`` are those of :class:`Client`.

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
    ) -> TaskGroup:
        """Return a task group as an async context: created on entry, closed at the end, cancelled on error.

        Args:
            group: a spec, a name, or None for a generated name; the info of an existing group uses it.
            workers: workers per host; overrides the spec.
            on_exit: ``wait`` until it is settled, only ``close`` it, or ``leave`` it open.
            on_error: when an exception (Ctrl-C too) leaves the block ``cancel``, ``close`` or ``leave`` it.
            patience: how long the API may be unavailable before the block fails.

        Workers use the import path of this program, unless the plan has a ``python_path``.
        """
        choice(on_exit, get_args(OnExit), "on_exit")
        choice(on_error, get_args(OnError), "on_error")
        patient = copy(self)
        patient.give_up_after = max(duration(patience, "patience"), self.give_up_after)
        return TaskGroup(patient, planned(group, workers), on_exit=on_exit, on_error=on_error)

    # --- task groups

    async def create_group(self, spec: TaskGroupSpec) -> TaskGroupInfo:
        """Create an OPEN task group. Not retried: without an answer it may or may not exist.

        Raises:
            AlreadyExists: the name is taken in its user group.
        """
        body = model(TaskGroupSpec, spec, "spec")
        return await self._api.model(TaskGroupInfo, "POST", "/task-groups", body)

    async def group(self, group: Group) -> TaskGroupInfo:
        """Return the group as it is now.

        Raises:
            NotFound: it does not exist, or the caller may not see it.
        """
        return await self._get(TaskGroupInfo, path_of(group))

    def groups(
        self,
        *,
        state: TaskGroupState | None = None,
        tag: str | None = None,
        label: str | None = None,
        name: str | None = None,
        settled: bool | None = None,
    ) -> AsyncIterator[TaskGroupInfo]:
        """Iterate over the groups that the caller may see, newest first."""
        chosen = query(
            GroupsQuery,
            state=_listed(state),
            tag=_listed(tag),
            label=_listed(label),
            name=name,
            settled=settled,
        )
        return self._pages(Page[TaskGroupInfo], "/task-groups", chosen)

    async def update_group(self, group: Group, update: TaskGroupUpdate) -> TaskGroupInfo:
        """Change the fields that ``update`` sets; an explicit None removes a limit.

        Raises:
            Conflict: the group was changed after ``expected_updated_at``.
        """
        body = model(TaskGroupUpdate, update, "update")
        return await self._api.model(TaskGroupInfo, "PUT", path_of(group), body)

    async def delete_group(
        self,
        group: Group,
        *,
        force: bool = False,
        grace: timedelta | None = None,
        reason: str | None = None,
    ) -> TaskGroupInfo | None:
        """Delete a settled group with its tasks and results; with ``force`` cancel any other one first.

        Returns:
            None if the group is gone; else the group, which is deleted when its hosts are clean.

        Raises:
            Conflict: the group is not settled, and ``force`` is not given.
        """
        given = {"force": force, "grace_seconds": grace_seconds(grace), "reason": reason}
        params = query(DeleteGroupQuery, **given) if force else {}
        answer = await self._api.call("DELETE", path_of(group), params=params)
        return TaskGroupInfo.model_validate_json(answer) if answer else None

    async def close_group(self, group: Group, *, reason: str | None = None) -> TaskGroupInfo:
        """Accept no more tasks; complete when the last one ends."""
        return await self._verb("POST", group, "close", VerbBody(reason=reason))

    async def reopen(self, group: Group, *, reason: str | None = None) -> TaskGroupInfo:
        """Accept tasks again.

        Raises:
            InvalidTransition: the group has ended.
        """
        return await self._verb("PUT", group, "reopen", VerbBody(reason=reason))

    async def cancel(
        self,
        group: Group,
        *,
        reason: str | None = None,
        cancel_running_tasks: bool = True,
        grace: timedelta | None = None,
    ) -> TaskGroupInfo:
        """Cancel the group; running tasks are stopped with grace, or may finish if requested.

        Raises:
            InvalidTransition: the group is complete.
        """
        body = CancelBody(
            reason=reason,
            cancel_running_tasks=cancel_running_tasks,
            grace_seconds=grace_seconds(grace),
        )
        return await self._verb("POST", group, "cancel", body)

    async def complete(
        self,
        group: Group,
        *,
        force: bool = False,
        reason: str | None = None,
        grace: timedelta | None = None,
    ) -> TaskGroupInfo:
        """Close the group and complete it; ``force`` cancels its unfinished tasks."""
        body = CompleteBody(force=force, reason=reason, grace_seconds=grace_seconds(grace))
        return await self._verb("POST", group, "complete", body)

    async def wait(
        self, group: Group, *, until: Until = "settled", timeout: timedelta | None = None
    ) -> TaskGroupInfo:
        """Wait until the group is complete (or cancelled), settled, or has changed; return it.

        After ``timeout`` the group is returned as it is; None waits for ever.
        """
        choice(until, get_args(Until), "until")
        left = math.inf if timeout is None else duration(timeout, "timeout").total_seconds()
        ends = time.monotonic() + left
        before = await self.group(group)
        while True:
            left = min(LONG_POLL.total_seconds(), ends - time.monotonic())
            if left <= 0 or (until != "changed" and reached(before, until)):
                return before
            params: Params = {"wait_seconds": round(left, 3), "until": until}
            info = await self._get(TaskGroupInfo, path_of(group), params, wait_seconds=left)
            if until != "changed":
                before = info
            elif info != before:
                return info

    # --- tasks

    async def submit(
        self,
        group: Group,
        tasks: Tasks,
        *,
        idempotency_key: str | None = None,
        require_worker: bool = False,
    ) -> list[int]:
        """Submit any number of tasks; ``ids[i]`` is the task of the i-th one.

        They are sent in parts of up to 10,000, each all or nothing, a few at a time, as they are read from
        ``tasks``. Repeating a submission under the same key creates no task twice.

        Raises:
            TaskGroupClosed: the group accepts no tasks.
            NoWorkersAvailable: no worker service can execute a task now, with ``require_worker``.
            InvalidRequest: ``facts["field"]`` names the task, as ``tasks[12].command``.
        """
        check_tasks(tasks)
        if idempotency_key is not None:
            checked(idempotency_key, SubmissionKey, "idempotency_key")
        prompt, key = idempotency_key is None, idempotency_key or uuid.uuid4().hex
        parts = parts_of(tasks, key, prompt=prompt, require_worker=require_worker)
        return await submit_parts(parts, lambda part: self.submit_part(group, part))

    async def submit_part(self, group: Group, part: Part) -> SubmitAnswer:
        """Submit up to 10,000 encoded tasks, all or nothing."""
        path = path_of(group) + "/tasks"
        return await self._repeat(lambda: self._api.struct(SubmitAnswer, "POST", path, part))

    def tasks(
        self, group: Group, *, state: TaskState | ListedState | None = None
    ) -> AsyncIterator[TaskInfo]:
        """Iterate over the tasks of a group by id, with results; ``failures`` have no ``detail``.

        ``state``: only these; ``held``: those that a host has claimed, running or about to be started.
        """
        chosen = query(TasksQuery, state=state)
        return self._pages(Page[TaskInfo], path_of(group) + "/tasks", chosen)

    def results(self, group: Group, *, after: int = 0) -> AsyncIterator[TaskInfo]:
        """Iterate over tasks as they end, each once, until the group has ended.

        They come in the order in which they were recorded; pass the last ``seq`` as ``after`` to continue.
        """
        query(ResultsQuery, after=after)
        return self._results(group_reference(group), after)

    async def _results(self, group: Group, after: int) -> AsyncIterator[TaskInfo]:
        while True:
            page = await self.results_page(group, after=after, wait=LONG_POLL)
            for item in page.items:
                yield item
            after = page.after
            if page.finished:
                return

    async def results_page(
        self, group: Group, *, after: int = 0, wait: timedelta = timedelta()
    ) -> ResultsPage:
        """Return up to 500 results after the ``after``-th; waits ``wait`` (at most 60 s) for the first."""
        seconds = duration(wait, "wait", most=MAX_WAIT_SECONDS).total_seconds()
        params = query(ResultsQuery, after=after, limit=PAGE, wait_seconds=seconds)
        path = path_of(group) + "/results"
        return await self._get(ResultsPage, path, params, wait_seconds=seconds)

    def events(
        self,
        group: Group,
        *,
        after: int = 0,
        results: bool = True,
        on_outage: Callable[[MitosisError], None] = lambda _: None,
    ) -> AsyncIterator[GroupEvent]:
        """Follow a group live, until the event ``end``: it is settled and every result was sent.

        Events are snapshots, state changes, leases, hooks and (unless ``results`` is False) each result
        after number ``after`` once, in order. Reconnects and continues after the last event; gives up when
        the API is unavailable for ``give_up_after``. ``on_outage`` is called for each failed connection.
        """
        if not callable(on_outage):
            raise InvalidRequest(f"must be callable, not {shown(on_outage)}", field="on_outage")
        params = query(EventsQuery, after=after, results=results)
        return self._events(path_of(group) + "/events", params, on_outage)

    async def _events(
        self, path: str, params: Params, on_outage: Callable[[MitosisError], None]
    ) -> AsyncIterator[GroupEvent]:
        following = follow(self._api, path, params, self.give_up_after, on_outage)
        async with aclosing(following) as events:
            async for event in events:
                yield GroupEvent.model_validate_json(event.data)

    async def retry(
        self,
        group: Group,
        *,
        into: Group | None = None,
        reasons: Sequence[FailureKind] = (),
        cancelled: bool = False,
        dry_run: bool = False,
    ) -> RetriedTasks:
        """Submit the failed tasks of a group again, into itself or another, each once.

        Tasks that an earlier retry submitted are left out. The API copies the tasks.

        Raises:
            TaskGroupClosed: the receiving group accepts no tasks.
        """
        body = RetryBody(
            into=None if into is None else group_reference(into, "into"),
            reasons=list(reasons),
            cancelled=cancelled,
            idempotency_key=uuid.uuid4().hex,
            dry_run=dry_run,
        )
        path = path_of(group) + "/retry"
        old, new = [], []
        while True:
            part = await self._post(RetriedTasks, path, body)
            old += part.retry_of
            new += part.task_ids
            if part.next is None:
                return RetriedTasks(retry_of=old, task_ids=new, next=None)
            body = body.model_copy(update={"after": part.next})

    async def explain(self, group: Group, *, at: datetime | None = None) -> Explanation:
        """Explain the state of the group in one line, and of each host that may serve it.

        ``at``: explain the last decision about hosts before this time (with a zone) instead.
        """
        query: Params = {} if at is None else {"at": at.isoformat()}
        return await self._get(Explanation, path_of(group) + "/explain", query)

    async def explain_task(self, task_uuid: UUID) -> Explanation:
        """Explain the state of one task, as :meth:`explain` does."""
        return await self._get(Explanation, task_path(task_uuid) + "/explain")

    async def task(self, task_uuid: UUID) -> TaskInfo:
        """Return one task with all its details."""
        return await self._get(TaskInfo, task_path(task_uuid))

    # --- managers

    async def register_manager(self, manager: RegisterManager) -> RegisteredManager:
        """Register a host; the answer has the token of its agent. Not retried."""
        body = model(RegisterManager, manager, "manager")
        return await self._api.model(RegisteredManager, "POST", "/managers", body)

    def managers(self) -> AsyncIterator[ManagerInfo]:
        """Iterate over the hosts that the caller may see."""
        return self._pages(Page[ManagerInfo], "/managers", {})

    async def manager(self, manager_id: UUID) -> ManagerInfo:
        return await self._get(ManagerInfo, f"/managers/{identifier(manager_id, 'manager_id')}")

    async def retry_setup(self, manager_id: UUID, group: Group | None = None) -> list[str]:
        """Repeat the setup that failed on a host for one task group, or for all.

        Returns:
            The names of the task groups for which it had failed there.
        """
        return await self._lift("retry-setup", manager_id, group)

    async def release_quarantine(self, manager_id: UUID, group: Group | None = None) -> list[str]:
        """End the quarantine of a host for one task group, or for all.

        Returns:
            The names of the task groups for which it was suspected or quarantined.
        """
        return await self._lift("release-quarantine", manager_id, group)

    async def _lift(self, verb: str, manager_id: UUID, group: Group | None) -> list[str]:
        path = f"/managers/{identifier(manager_id, 'manager_id')}/{verb}"
        body = LiftFailures(task_group=None if group is None else group_reference(group))
        answer = await self._repeat(lambda: self._api.model(LiftedFailures, "POST", path, body))
        return answer.task_groups

    async def group_managers(self, group: Group) -> list[GroupManagerInfo]:
        """Return the members of a group: matched by tags at the last refresh, or added by a user."""
        path = path_of(group) + "/managers"
        answer = await self._repeat(lambda: self._api.call("GET", path))
        return _MANAGERS.validate_json(answer)

    async def add_managers(self, group: Group, manager_ids: Sequence[UUID]) -> None:
        """Add managers to a group, all or none; it ends an earlier removal.

        Raises:
            NotFound: there is no such manager.
            PermissionDenied: a manager has no write role in the group's user group.
        """
        body = NamedManagers(manager_ids=list(manager_ids))
        await self._repeat(lambda: self._api.call("POST", path_of(group) + "/managers", body))

    async def remove_managers(self, group: Group, manager_ids: Sequence[UUID]) -> None:
        """Remove managers from a group, all or none, until they are added again.

        Their leases for it start to end: running tasks finish, the others are returned.

        Raises:
            NotFound: a manager is not a member.
        """
        body = NamedManagers(manager_ids=list(manager_ids))
        await self._repeat(lambda: self._api.call("DELETE", path_of(group) + "/managers", body))

    async def refresh_managers(self, group: Group) -> RefreshedManagers:
        """Match managers to the group's tags again. Not retried: the answer lists what this call changed."""
        path = path_of(group) + "/managers/refresh"
        return await self._api.model(RefreshedManagers, "POST", path)

    # --- how


def _listed(value: T | None) -> list[T] | None:
    return None if value is None else [value]
