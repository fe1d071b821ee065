"""One run of a job in a program: its state, its end, its changes and the results of its steps."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

from mitosis.client.parameters import duration
from mitosis.contracts.checking import shown
from mitosis.contracts.errors import Conflict, InvalidRequest
from mitosis.contracts.lifecycle import RUN, STEP, RunState, StepState, TaskState
from mitosis.contracts.runs import RunDefinition, RunView, StepInfo, StepTask
from mitosis.jobs.building import StepFunction

StepReference: TypeAlias = "StepFunction[Any, Any] | str"
"""A function marked with ``@step``, or the name of a step."""
LONG_POLL = timedelta(seconds=30)
AT_MOST_EVERY = timedelta(milliseconds=200)


class CallsOfRun(Protocol):
    """The calls of :class:`~mitosis.client.client.Client` about one run."""

    async def run_view(
        self,
        run_id: UUID,
        *,
        wait: timedelta = timedelta(),
        until: Literal["changed", "ended"] = "changed",
        after_revision: int | None = None,
    ) -> RunView: ...

    async def run_definition(self, run_id: UUID) -> RunDefinition: ...

    def step_tasks(
        self, run_id: UUID, step: StepReference, *, state: TaskState | None = None
    ) -> AsyncIterator[StepTask]: ...

    async def cancel_run(
        self,
        run_id: UUID,
        *,
        reason: str | None = None,
        grace: timedelta | None = None,
        skip_cleanup: bool = False,
    ) -> RunView: ...

    async def rerun(
        self,
        run_id: UUID,
        *,
        name: str | None = None,
        all_steps: bool = False,
        idempotency_key: str | None = None,
    ) -> "JobRun": ...

    async def delete_run(self, run_id: UUID) -> None: ...


class JobRun:
    """A run of a job. :meth:`.Client.start_job` and :meth:`.Client.run` return it."""

    def __init__(self, calls: CallsOfRun, info: RunView) -> None:
        """Use :meth:`Client.start_job <mitosis.client.client.Client.start_job>`."""
        self._calls = calls
        self.info = info
        """The run as last returned by the API; :meth:`refresh` updates it."""

    @property
    def run_id(self) -> UUID:
        return self.info.run_id

    @property
    def state(self) -> RunState:
        """The state as last returned by the API."""
        return self.info.state

    async def refresh(self) -> RunView:
        """Return the run as it is now."""
        self.info = await self._calls.run_view(self.run_id)
        return self.info

    async def wait(self, timeout: timedelta | None = None) -> RunView:
        """Wait until the run has ended and return it.

        After ``timeout`` the run is returned as it is; None waits for ever.
        """
        left = math.inf if timeout is None else duration(timeout, "timeout").total_seconds()
        ends = time.monotonic() + left
        while not has_ended(self.info):
            left = min(LONG_POLL.total_seconds(), max(0.0, ends - time.monotonic()))
            self.info = await self._calls.run_view(
                self.run_id, wait=timedelta(seconds=left), until="ended"
            )
            if time.monotonic() >= ends:
                break
        return self.info

    async def changes(self, at_most_every: timedelta = AT_MOST_EVERY) -> AsyncIterator[RunView]:
        """Iterate over the run now and after each change, until it has ended.

        Changes within ``at_most_every`` are seen as one; the last view always comes.
        """
        pause = duration(at_most_every, "at_most_every").total_seconds()
        await self.refresh()
        while True:
            before = self.info.revision
            yield self.info
            if has_ended(self.info):
                return
            await asyncio.sleep(pause)
            while self.info.revision <= before:
                self.info = await self._calls.run_view(
                    self.run_id, wait=LONG_POLL, until="changed", after_revision=before
                )

    async def cancel(
        self,
        *,
        reason: str | None = None,
        grace: timedelta | None = None,
        skip_cleanup: bool = False,
    ) -> RunView:
        """Cancel it, as :meth:`.Client.cancel_run` does."""
        self.info = await self._calls.cancel_run(
            self.run_id, reason=reason, grace=grace, skip_cleanup=skip_cleanup
        )
        return self.info

    async def rerun(
        self,
        *,
        name: str | None = None,
        all_steps: bool = False,
        idempotency_key: str | None = None,
    ) -> "JobRun":
        """Start a new run of what has not succeeded, as :meth:`.Client.rerun` does."""
        return await self._calls.rerun(
            self.run_id, name=name, all_steps=all_steps, idempotency_key=idempotency_key
        )

    def tasks(
        self, step: StepReference, *, state: TaskState | None = None
    ) -> AsyncIterator[StepTask]:
        """Iterate over the tasks of a step by index, with their results."""
        return self._calls.step_tasks(self.run_id, step, state=state)

    async def result(self, step: StepReference) -> Any:
        """Return what ``results.STEP`` means in a definition.

        Of a step with one task that is its return value. Of an array it is the list of the results by
        index, with None where a task has none.

        Raises:
            Conflict: the step has not ended; or it has one task, which has not succeeded.
            InvalidRequest: the run has no such step.
        """
        name = step_name(step)
        if self._step(name).ended_at is None:
            await self.refresh()
        found = self._step(name)
        if found.state not in STEP.terminal:
            raise Conflict(f"the step {name} has not ended: it is {found.state}; wait for the run")
        results = [task.result async for task in self.tasks(name)]
        if found.is_array:
            return results
        if found.state is not StepState.SUCCEEDED:
            why = f": {found.reason}" if found.reason else ""
            raise Conflict(f"the step {name} has no result: it is {found.state}{why}")
        return results[0] if results else None

    async def definition(self) -> RunDefinition:
        """Return the definition that it executes."""
        return await self._calls.run_definition(self.run_id)

    async def delete(self) -> None:
        """Delete it, as :meth:`.Client.delete_run` does."""
        await self._calls.delete_run(self.run_id)

    def _step(self, name: str) -> StepInfo:
        for one in self.info.steps:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self.info.steps)
        raise InvalidRequest(f"the run has no step {name}; it has {names}", field="step")

    def __repr__(self) -> str:
        return f"<run {self.run_id} of {self.info.job_name}: {self.state}>"


def has_ended(run: RunView) -> bool:
    """Return whether the state is final."""
    return run.state in RUN.terminal


def step_name(step: StepReference) -> str:
    """Return the name of a step.

    Raises:
        InvalidRequest: it is neither a name nor a function marked with ``@step``.
    """
    if isinstance(step, StepFunction):
        return step.name
    if isinstance(step, str):
        return step
    raise InvalidRequest(
        f"must be the name of a step, or a function with @step, not {shown(step)}", field="step"
    )
