"""The calls about runs of jobs; :class:`Client` has them."""

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import quote
from uuid import UUID

from mitosis.client.job_calls import JobCalls, Startable, fields_of
from mitosis.client.job_run import JobRun, StepReference, step_name
from mitosis.client.parameters import grace_seconds, group_reference, identifier, model, query
from mitosis.contracts.http import Page
from mitosis.contracts.lifecycle import RunState, TaskState
from mitosis.contracts.runs import (
    CancelRun,
    RerunRun,
    RunDefinition,
    RunInfo,
    RunQuery,
    RunsQuery,
    RunView,
    StartRun,
    StepTask,
    StepTasksQuery,
)


class RunOptions(TypedDict, total=False):
    """What may be said of a new run."""

    version: int | None
    """Of the stored job; None: the last one."""
    name: str | None
    """Shown beside the run."""
    labels: Sequence[str]
    """To find it by."""
    group_name: str | None
    """User group of a run of a definition; None: the caller's own."""
    idempotency_key: str | None
    """A second call with it returns the run of the first one."""


class RunCalls(JobCalls):
    """Start, list, follow, cancel and rerun runs of jobs."""

    async def start_job(
        self,
        job: Startable,
        parameters: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> JobRun:
        """Start a run of a stored job, or of a definition that need not be stored.

        Args:
            job: the reference of a stored job; or a :class:`~mitosis.jobs.building.Job`, or the fields of
                a definition. Workers import the functions of a ``Job`` from the folders of this program.
            parameters: values by name.
            options: see :class:`RunOptions`.

        Raises:
            InvalidRequest: lists what is wrong with the definition or the parameters.
            NotFound: there is no such job or version.
        """
        given: dict[str, Any] = dict(options)
        if parameters is not None:
            given["parameters"] = dict(parameters)
        known = {key: value for key, value in given.items() if value is not None}
        known.setdefault("idempotency_key", uuid.uuid4().hex)  # the call may be repeated
        body = model(StartRun, {**_what_to_run(job), **known})
        return JobRun(self, await self._post(RunView, "/runs", body))

    def runs(
        self,
        *,
        state: RunState | Iterable[RunState] | None = None,
        job: str | None = None,
        group_name: str | None = None,
        created_by: str | None = None,
        schedule: str | None = None,
        label: str | Iterable[str] | None = None,
    ) -> AsyncIterator[RunInfo]:
        """Iterate over the runs of the caller's user groups, the newest first.

        A run must have one of the states, all labels, be of the job with this name and of the schedule with
        this ``USERGROUP/NAME``, or name in ``group_name``, and be started by the user with this name. Runs of
        schedules count as started by a user only where a schedule is given.
        """
        chosen = query(
            RunsQuery,
            state=_listed(state),
            job=job,
            group_name=group_name,
            created_by=created_by,
            schedule=schedule,
            label=_listed(label),
        )
        return self._pages(Page[RunInfo], "/runs", chosen)

    async def run(self, run_id: UUID) -> JobRun:
        """Return a run, to follow, cancel or rerun it.

        Raises:
            NotFound: there is none, or it is in a user group that the caller may not read.
        """
        return JobRun(self, await self.run_view(run_id))

    async def run_view(
        self,
        run_id: UUID,
        *,
        wait: timedelta = timedelta(),
        until: Literal["changed", "ended"] = "changed",
        after_revision: int | None = None,
    ) -> RunView:
        """Return a run with its steps, after ``wait`` at the latest; :class:`JobRun` repeats this."""
        seconds = round(wait.total_seconds(), 3)
        chosen = query(RunQuery, wait_seconds=seconds, until=until, after_revision=after_revision)
        return await self._get(RunView, _path(run_id), chosen, wait_seconds=seconds)

    async def run_definition(self, run_id: UUID) -> RunDefinition:
        """Return the definition that a run executes."""
        return await self._get(RunDefinition, _path(run_id) + "/definition")

    def step_tasks(
        self, run_id: UUID, step: StepReference, *, state: TaskState | None = None
    ) -> AsyncIterator[StepTask]:
        """Iterate over the tasks of a step by index, with their results."""
        path = f"{_path(run_id)}/steps/{quote(step_name(step), safe='')}/tasks"
        return self._pages(Page[StepTask], path, query(StepTasksQuery, state=state))

    async def cancel_run(
        self,
        run_id: UUID,
        *,
        reason: str | None = None,
        grace: timedelta | None = None,
        skip_cleanup: bool = False,
    ) -> RunView:
        """Cancel the unfinished tasks of a run; steps that clean up still run.

        Args:
            run_id: of the run.
            reason: stored with the run.
            grace: from SIGTERM to SIGKILL of running tasks; None: that of their task group.
            skip_cleanup: also the steps that follow others ``always``.

        Raises:
            InvalidTransition: the run has ended, and was not cancelled.
        """
        body = CancelRun(
            reason=reason, grace_seconds=grace_seconds(grace), skip_cleanup=skip_cleanup
        )
        return await self._post(RunView, _path(run_id) + "/cancel", body)

    async def rerun(
        self,
        run_id: UUID,
        *,
        name: str | None = None,
        all_steps: bool = False,
        idempotency_key: str | None = None,
    ) -> JobRun:
        """Start a new run of what has not succeeded in an ended one, and of what comes after it.

        The results of the other steps are taken over; ``all_steps`` takes over none.

        Raises:
            Conflict: the run has not ended.
        """
        body = RerunRun(
            name=name, all_steps=all_steps, idempotency_key=idempotency_key or uuid.uuid4().hex
        )
        return JobRun(self, await self._post(RunView, _path(run_id) + "/rerun", body))

    async def delete_run(self, run_id: UUID) -> None:
        """Delete an ended run with its task groups, tasks and results.

        Raises:
            Conflict: it has not ended, or another run uses its results.
        """
        await self._api.call("DELETE", _path(run_id))


def _what_to_run(job: Startable) -> dict[str, Any]:
    if isinstance(job, UUID | str):
        return {"job": group_reference(job, "job")}
    return {"definition": fields_of(job, search_here=True)}


def _listed(value: str | Iterable[str] | None) -> list[str] | None:
    if value is None:
        return None
    return [value] if isinstance(value, str) else list(value)


def _path(run_id: UUID) -> str:
    return f"/runs/{identifier(run_id, 'run_id')}"
