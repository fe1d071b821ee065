"""One attempt as an execution of a Cloud Run job; at most one execution is adopted per task.

The name of the execution is the checkpoint of the attempt, acknowledged before the first poll. So the next
attempt, on any service, adopts it if it runs or has succeeded, and starts no second one. Executions of the
task that were started and never adopted are cancelled.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from mitosis.contracts.errors import Unavailable
from mitosis.contracts.outcome import FailureKind
from mitosis.executors.cloud_run.rest import (
    KEY,
    CloudRun,
    Execution,
    Exhausted,
    Gone,
    Refused,
    jittered,
)
from mitosis.executors.contract import (
    CheckpointRefused,
    ExecutionContext,
    ExecutorTask,
    ResourcesRefused,
    positive,
)
from mitosis.worker.report import Ended, encode_result

MAX_INPUT_BYTES = 30_000
"""Of the attempt as JSON: an environment variable of Cloud Run has at most 32 KiB."""
CLOCK_MARGIN = timedelta(minutes=5)
"""So far the clocks of this machine and of Cloud Run may differ."""
LOOK_BACK = timedelta(days=7)
"""No execution runs longer. Source: Cloud Run documentation, "Set task timeout for jobs"."""


@dataclass(slots=True)
class Shared:
    """What the attempts of a process share."""

    service: CloudRun
    poll_seconds: float = 2.0
    list_seconds: float = 60.0
    """So long executions are listed after a start without an answer, before a second start."""
    exhausted_until: float = 0.0
    """``loop.time`` until which no start is tried, because the quota is used up."""
    exhausted_pause_seconds: float = 30.0
    cancelled_late: int = 0
    """Executions that were started, not adopted, and cancelled."""


@dataclass(slots=True)
class CloudRunExecutor:
    """One execution."""

    shared: Shared
    kind: str = "cloud_run"
    _cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    _may_have_others: bool = False
    """Executions that were not adopted may run: a start had no answer, or there was an earlier attempt."""

    def estimate_seconds(self, task: ExecutorTask) -> float | None:
        return positive(task.configuration.get("estimate_seconds"))

    def validate_resources(self, task: ExecutorTask) -> None:
        del task
        left = self.shared.exhausted_until - asyncio.get_running_loop().time()
        if left > 0:
            raise ResourcesRefused(
                f"Cloud Run said that its quota is used up; no start is tried for {left:.0f} s"
            )

    async def cancel(self, grace_seconds: float) -> None:
        """Cancel the execution; Cloud Run gives it 10 s of its own."""
        del grace_seconds
        self._cancelled.set()

    async def execute(self, task: ExecutorTask, context: ExecutionContext) -> Ended:
        if len(task.document.encode()) > MAX_INPUT_BYTES:
            message = (
                f"the attempt has more than {MAX_INPUT_BYTES} bytes of JSON: put data into a file"
            )
            return Ended(kind=FailureKind.NOT_STARTED, message=message)
        self._may_have_others = context.attempt > 1
        try:
            name = await self._adopted(context) or await self._started(task, context)
            await self._adopt(name, context)
        except Exhausted as error:
            loop = asyncio.get_running_loop()
            self.shared.exhausted_until = loop.time() + self.shared.exhausted_pause_seconds
            return Ended(kind=FailureKind.TERMINATED, message=f"it was not started: {error}")
        except Refused as error:
            return Ended(kind=FailureKind.NOT_STARTED, message=f"Cloud Run refuses it: {error}")
        except _NotStarted:
            return Ended(kind=FailureKind.CANCELLED, message="cancelled before it was started")
        return await self._followed(name, task, context)

    # --- start ----------------------------------------------------------------------------------

    async def _adopted(self, context: ExecutionContext) -> str | None:
        """Return the execution of an earlier attempt if it runs or has succeeded."""
        last = context.last_checkpoint
        name = last.get("execution") if isinstance(last, dict) else None
        if not isinstance(name, str):
            return None
        with suppress(Gone):
            found = await self.shared.service.execution(name)
            if found.succeeded or not found.is_over:
                context.log.info("execution.adopted", extra={"execution": name})
                return name
        return None

    async def _started(self, task: ExecutorTask, context: ExecutionContext) -> str:
        """Start an execution; return its name once that is certain.

        Raises:
            Exhausted, Refused: none was started.
            _NotStarted: it was cancelled before.
        """
        job = job_of(task.configuration)
        variables = {
            **task.environment,
            **context.variables,
            "MITOSIS_INPUT": task.document,
            KEY: context.fencing,
        }
        if self._may_have_others:
            await self._cancel_others(task, None, context)
        while not self._cancelled.is_set():
            began = datetime.now(UTC)
            try:
                return await self.shared.service.run(job, variables, task.timeout_seconds)
            except Unavailable as error:
                self._may_have_others = True
                context.log.warning("execution.unanswered", extra={"reason": error.message})
            found = await self._found(job, context.fencing, began - CLOCK_MARGIN)
            if found is not None:
                return found
        raise _NotStarted

    async def _found(self, job: str, key: str, since: datetime) -> str | None:
        """Look for the execution of a start that was not answered, for some time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.shared.list_seconds
        while True:
            async for one in self.shared.service.executions(job, since):
                if one.key == key:
                    return one.name
            left = until - loop.time()
            if left <= 0:
                return None
            await asyncio.sleep(min(left, jittered(self.shared.poll_seconds)))

    async def _adopt(self, name: str, context: ExecutionContext) -> None:
        """Have the next attempt find this execution, before anything else is done with it.

        Raises:
            CheckpointRefused: the attempt does not count; an execution that it started is cancelled.
        """
        try:
            await context.checkpoint({"execution": name, "key": context.fencing})
        except CheckpointRefused:
            last = context.last_checkpoint
            if not (isinstance(last, dict) and last.get("execution") == name):
                await self._cancel_late(name, context)
            raise

    async def _cancel_others(
        self, task: ExecutorTask, adopted: str | None, context: ExecutionContext
    ) -> None:
        """Cancel the executions of this task that run and were not adopted."""
        job, prefix = job_of(task.configuration), f"{task.task_uuid}/"
        since = datetime.now(UTC) - LOOK_BACK
        async for one in self.shared.service.executions(job, since):
            of_task = one.key is not None and one.key.startswith(prefix)
            if of_task and one.name != adopted and not one.is_over:
                await self._cancel_late(one.name, context)

    async def _cancel_late(self, name: str, context: ExecutionContext) -> None:
        await self._cancel(name, context)
        self.shared.cancelled_late += 1
        context.log.warning(
            "execution.not_adopted",
            extra={"execution": name, "cancelled_late": self.shared.cancelled_late},
        )

    # --- end ------------------------------------------------------------------------------------

    async def _followed(self, name: str, task: ExecutorTask, context: ExecutionContext) -> Ended:
        """Follow the execution to its end, also where that cannot be seen."""
        try:
            return await self._ended(name, task, context)
        except Gone:
            message = f"its execution was deleted while it ran: {name}"
            return Ended(kind=FailureKind.TERMINATED, message=message)
        except Refused as error:
            await self._cancel(name, context)
            message = f"Cloud Run refuses to say how {name} goes, so it was cancelled: {error}"
            return Ended(kind=FailureKind.HANDLER_ERROR, message=message)

    async def _ended(self, name: str, task: ExecutorTask, context: ExecutionContext) -> Ended:
        """Poll the execution until it is over; cancel it when that is ordered.

        Raises:
            Gone: it was deleted.
            Refused: the service does not say how it goes.
        """
        asked = False
        while True:
            if self._cancelled.is_set() and not asked:
                asked = await self._cancel(name, context)
            found = await self.shared.service.execution(name)
            if found.is_over:
                break
            stage = "running" if found.running else "pending"
            context.progress(found.fraction, stage, name.rpartition("/")[2])
            await self._pause()
        if self._may_have_others:
            try:
                await self._cancel_others(task, name, context)
            except Refused as error:  # how it ended is known, and counts
                context.log.warning("execution.not_listed", extra={"reason": str(error)})
        return await self._end_of(found)

    async def _cancel(self, name: str, context: ExecutionContext) -> bool:
        """Cancel an execution; return whether that was accepted: one that is over may refuse it."""
        try:
            await self.shared.service.cancel(name)
        except Refused as error:
            facts = {"execution": name, "reason": str(error)}
            context.log.warning("execution.not_cancelled", extra=facts)
            return False
        return True

    async def _pause(self) -> None:
        pause = jittered(self.shared.poll_seconds)
        if self._cancelled.is_set():
            await asyncio.sleep(pause)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._cancelled.wait()

    async def _end_of(self, found: Execution) -> Ended:
        if found.succeeded:
            result = {"execution": found.name, "log_uri": found.log_uri}
            return Ended(result=encode_result(result))
        if self._cancelled.is_set():
            return Ended(kind=FailureKind.CANCELLED, message="cancelled")
        code = None
        with suppress(Refused):
            code = await self.shared.service.exit_code(found.name)
        message = f"{found.name}: {found.message or 'failed'}; {found.log_uri}"
        kind = FailureKind.HANDLER_ERROR if code is None else FailureKind.EXIT_CODE
        return Ended(kind=kind, exit_code=code, message=message)


class _NotStarted(Exception):
    """It was cancelled before it was started."""


def job_of(configuration: Mapping[str, Any]) -> str:
    """Return the name of the job of a configuration."""
    project, location = configuration["project"], configuration["location"]
    return f"projects/{project}/locations/{location}/jobs/{configuration['job']}"
