"""A run of a job without async, and the calls that return one; :class:`SyncClient` has them."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, Unpack
from uuid import UUID

from mitosis.client.client import Client
from mitosis.client.job_calls import Startable, fields_of
from mitosis.client.job_run import AT_MOST_EVERY, JobRun, StepReference
from mitosis.client.loop_thread import LoopThread
from mitosis.client.run_calls import RunOptions
from mitosis.client.sync_task_group import each_of
from mitosis.contracts.lifecycle import RunState, TaskState
from mitosis.contracts.runs import RunDefinition, RunInfo, RunView, StepTask
from mitosis.jobs.building import Job


class SyncJobRun:
    """A synchronous :class:`~mitosis.client.job_run.JobRun`."""

    def __init__(self, loop: LoopThread, run: JobRun) -> None:
        """Use :meth:`SyncClient.start_job <mitosis.client.sync.SyncClient.start_job>`."""
        self._loop = loop
        self._run = run

    @property
    def info(self) -> RunView:
        """The run as last returned by the API; :meth:`refresh` updates it."""
        return self._run.info

    @property
    def run_id(self) -> UUID:
        return self._run.run_id

    @property
    def state(self) -> RunState:
        """The state as last returned by the API."""
        return self._run.state

    def refresh(self) -> RunView:
        return self._loop.run(self._run.refresh())

    def wait(self, timeout: timedelta | None = None) -> RunView:
        return self._loop.run(self._run.wait(timeout))

    def changes(self, at_most_every: timedelta = AT_MOST_EVERY) -> Iterator[RunView]:
        return each_of(self._loop, self._run.changes(at_most_every))

    def cancel(
        self,
        *,
        reason: str | None = None,
        grace: timedelta | None = None,
        skip_cleanup: bool = False,
    ) -> RunView:
        return self._loop.run(
            self._run.cancel(reason=reason, grace=grace, skip_cleanup=skip_cleanup)
        )

    def rerun(
        self,
        *,
        name: str | None = None,
        all_steps: bool = False,
        idempotency_key: str | None = None,
    ) -> "SyncJobRun":
        made = self._run.rerun(name=name, all_steps=all_steps, idempotency_key=idempotency_key)
        return SyncJobRun(self._loop, self._loop.run(made))

    def tasks(self, step: StepReference, *, state: TaskState | None = None) -> Iterator[StepTask]:
        return each_of(self._loop, self._run.tasks(step, state=state))

    def result(self, step: StepReference) -> Any:
        return self._loop.run(self._run.result(step))

    def definition(self) -> RunDefinition:
        return self._loop.run(self._run.definition())

    def delete(self) -> None:
        self._loop.run(self._run.delete())

    def __repr__(self) -> str:
        return repr(self._run)


class SyncRunCalls:
    """Start, list, follow, cancel and rerun runs of jobs."""

    _client: Client
    _loop: LoopThread

    def start_job(
        self,
        job: Startable,
        parameters: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> SyncJobRun:
        # what the calling thread runs decides whether workers may import its script
        wanted = fields_of(job, search_here=True) if isinstance(job, Job) else job
        started = self._client.start_job(wanted, parameters, **options)
        return SyncJobRun(self._loop, self._loop.run(started))

    def runs(
        self,
        *,
        state: RunState | Iterable[RunState] | None = None,
        job: str | None = None,
        group_name: str | None = None,
        created_by: str | None = None,
        schedule: str | None = None,
        label: str | Iterable[str] | None = None,
    ) -> Iterator[RunInfo]:
        found = self._client.runs(
            state=state,
            job=job,
            group_name=group_name,
            created_by=created_by,
            schedule=schedule,
            label=label,
        )
        return each_of(self._loop, found)

    def run(self, run_id: UUID) -> SyncJobRun:
        return SyncJobRun(self._loop, self._loop.run(self._client.run(run_id)))

    def run_view(
        self,
        run_id: UUID,
        *,
        wait: timedelta = timedelta(),
        until: Literal["changed", "ended"] = "changed",
        after_revision: int | None = None,
    ) -> RunView:
        return self._loop.run(
            self._client.run_view(run_id, wait=wait, until=until, after_revision=after_revision)
        )

    def run_definition(self, run_id: UUID) -> RunDefinition:
        return self._loop.run(self._client.run_definition(run_id))

    def step_tasks(
        self, run_id: UUID, step: StepReference, *, state: TaskState | None = None
    ) -> Iterator[StepTask]:
        return each_of(self._loop, self._client.step_tasks(run_id, step, state=state))

    def cancel_run(
        self,
        run_id: UUID,
        *,
        reason: str | None = None,
        grace: timedelta | None = None,
        skip_cleanup: bool = False,
    ) -> RunView:
        return self._loop.run(
            self._client.cancel_run(run_id, reason=reason, grace=grace, skip_cleanup=skip_cleanup)
        )

    def rerun(
        self,
        run_id: UUID,
        *,
        name: str | None = None,
        all_steps: bool = False,
        idempotency_key: str | None = None,
    ) -> SyncJobRun:
        made = self._client.rerun(
            run_id, name=name, all_steps=all_steps, idempotency_key=idempotency_key
        )
        return SyncJobRun(self._loop, self._loop.run(made))

    def delete_run(self, run_id: UUID) -> None:
        self._loop.run(self._client.delete_run(run_id))
