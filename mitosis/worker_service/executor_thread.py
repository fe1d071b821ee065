"""Runs executors in one event loop, which has a thread of its own, in the slots of a worker service.

An executor is asked to end by its ``cancel``, never by the cancel of its coroutine: what it has started ends
first. Timeouts and attempts without progress are found here, for all executors alike.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.named_tasks import TaskName, task_name
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.run_spec import RunSpec
from mitosis.contracts.service_tasks import NamedTaskAttempt
from mitosis.contracts.task import TaskSpec
from mitosis.executors.contract import (
    CheckpointRefused,
    ExecutionContext,
    Executor,
    ExecutorKind,
    ExecutorTask,
    Progress,
    Reporting,
    ResourcesRefused,
    ServiceFacts,
    positive,
)
from mitosis.worker.report import Ended
from mitosis.worker_service.coroutines import CoroutineThread, HandlerRun, call_soon, failed
from mitosis.worker_service.progress import ProgressBoard
from mitosis.worker_service.targets import Target

FINISH_SECONDS = 3.0
"""So long the end of the process waits for what its executors have started."""
STUCK_AFTER = "stuck_after_seconds"
STUCK_FACTOR = 2.0
"""Without ``stuck_after_seconds``, so many times its estimate may pass without progress."""

log = logging.getLogger(__name__)

_attempt = msgspec.json.Decoder(NamedTaskAttempt)
_spec = msgspec.json.Decoder(TaskSpec)


class ExecutorRun(HandlerRun):
    """One attempt of an executor: what it is asked to do, from any thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout_seconds: float | None,
        ended: Callable[[Ended], object],
    ) -> None:
        super().__init__(loop, timeout_seconds, ended)
        self.grace_seconds: float | None = None
        """The shortest that was ordered; None: no stop was ordered."""
        self.ordered = asyncio.Event()
        """Set by each order, in the loop of the executors."""
        self.stuck: Ended | None = None

    def cancel(self, message: str, grace_seconds: float = 0.0) -> None:
        """Have it cancelled; a later call can only shorten the grace."""
        if self.cancelled_for is None and self.stopped() is None:
            self.cancelled_for = message
        call_soon(self._loop, self._order, grace_seconds)

    def stopped(self) -> Ended | None:
        return self.stuck if self.stuck is not None else super().stopped()

    def _order(self, grace_seconds: float) -> None:
        known = self.grace_seconds
        if known is None or grace_seconds < known:
            self.grace_seconds = grace_seconds
            self.ordered.set()


class _Watch(Reporting):
    """Passes progress on, and knows when it changed last."""

    def __init__(self, reporting: Reporting) -> None:
        self._reporting = reporting
        self._shown = Progress()
        self.changed_at = time.monotonic()
        self.stuck_after: float | None = None
        """So many seconds without a change are too long; None: no time is."""

    def progress(self, progress: Progress) -> None:
        if (progress.fraction, progress.stage) != (self._shown.fraction, self._shown.stage):
            self.changed_at = time.monotonic()
        self._shown = progress
        self._reporting.progress(progress)

    async def checkpoint(self, value: Any) -> None:
        await self._reporting.checkpoint(value)


class ExecutorThread(CoroutineThread):
    """The event loop of the executors."""

    def __init__(
        self,
        kinds: Mapping[str, ExecutorKind],
        targets: Mapping[TaskName, Target],
        board: ProgressBoard,
        service: ServiceFacts,
        scratch: Path,
    ) -> None:
        """Start nothing.

        Args:
            kinds: those that the targets name.
            targets: how each named task is executed.
            board: gets progress and checkpoints.
            service: of this process.
            scratch: gets a folder for each attempt, removed after it.
        """
        super().__init__({}, scratch)
        self._kinds, self._targets, self._board = kinds, targets, board
        self._service = service
        self._ready: asyncio.Future[None] | None = None

    async def ready(self) -> None:
        """Return when all kinds have started, in the loop of the executors.

        Raises:
            MitosisError: one cannot; says why.
        """
        if self._ready is None:
            starting = asyncio.run_coroutine_threadsafe(self._start_kinds(), self.loop)
            self._ready = asyncio.wrap_future(starting)
        await asyncio.shield(self._ready)

    def new_run(
        self, loop: asyncio.AbstractEventLoop, spec: RunSpec, ended: Callable[[Ended], object]
    ) -> ExecutorRun:
        return ExecutorRun(loop, spec.timeout_seconds, ended)

    async def _start_kinds(self) -> None:
        for kind in self._kinds.values():
            await kind.start(self._service)

    async def finish(self) -> None:
        """Wait for what was cancelled, then release what the kinds share."""
        own = asyncio.current_task()
        if left := [task for task in asyncio.all_tasks() if task is not own]:
            await asyncio.wait(left, timeout=FINISH_SECONDS)
        for name, kind in self._kinds.items():
            try:
                await kind.close()
            except Exception as error:  # noqa: BLE001 - of a package
                log.warning("executor.not_closed", extra={"kind": name, "reason": repr(error)})

    async def call(self, run: HandlerRun, key: AttemptKey, spec: RunSpec, folder: Path) -> Ended:
        assert isinstance(run, ExecutorRun)  # noqa: S101 - new_run makes it
        attempt = _attempt.decode(spec.input or "")
        name = TaskName(attempt.namespace, attempt.name, attempt.version)
        target = self._targets[name]
        task = executor_task(key, attempt, target)
        watch = _Watch(self._board.of(key))
        context = ExecutionContext(
            key, task, watch, folder, variables=spec.variables, last_checkpoint=attempt.checkpoint
        )
        try:
            executor = self._kinds[target.executor or ""].make()
            executor.validate_resources(task)
            watch.stuck_after = _stuck_after(executor, task)
        except ResourcesRefused as error:
            return Ended(kind=FailureKind.TERMINATED, message=f"it was not started: {error}")
        except Exception as error:  # noqa: BLE001 - an executor may raise anything
            return failed(error)
        try:
            ended = await self._supervised(run, executor, task, context, watch)
        finally:
            self._board.forget(key)
        return _with_reason(ended, run.stopped())

    async def _supervised(
        self,
        run: ExecutorRun,
        executor: Executor,
        task: ExecutorTask,
        context: ExecutionContext,
        watch: _Watch,
    ) -> Ended:
        """Execute the attempt; have it end when that is ordered, its time is over or it is stuck."""
        work = asyncio.ensure_future(executor.execute(task, context))
        orders = asyncio.ensure_future(self._cancel_by_order(run, executor))
        limits = asyncio.ensure_future(_order_at_limits(run, task, watch))
        try:
            return await asyncio.shield(work)
        except CheckpointRefused as error:
            return Ended(kind=FailureKind.CANCELLED, message=str(error))
        except MitosisError as error:
            return Ended(kind=FailureKind.HANDLER_ERROR, message=error.message)
        except asyncio.CancelledError:
            if not work.done():  # the process ends
                work.cancel()
                await asyncio.wait([work])
                raise
            return failed(RuntimeError("the executor was cancelled as a coroutine"))
        except Exception as error:  # noqa: BLE001 - an executor may raise anything
            return failed(error)
        finally:
            orders.cancel()
            limits.cancel()

    async def _cancel_by_order(self, run: ExecutorRun, executor: Executor) -> None:
        while True:
            await run.ordered.wait()
            run.ordered.clear()
            try:
                await executor.cancel(run.grace_seconds or 0.0)
            except Exception as error:  # noqa: BLE001 - an executor may raise anything
                log.error(  # noqa: TRY400
                    "executor.not_cancelled",
                    extra={"kind": executor.kind, "reason": repr(error)},
                )


async def _order_at_limits(run: ExecutorRun, task: ExecutorTask, watch: _Watch) -> None:
    """Order the end of an attempt at its timeout, or when it makes no progress."""
    began, after = time.monotonic(), watch.stuck_after
    while True:
        now = time.monotonic()
        if task.timeout_seconds is not None and now >= began + task.timeout_seconds:
            run.cancel("", task.kill_grace_seconds)
            return
        if after is not None and now >= watch.changed_at + after:
            if run.stopped() is None:
                message = f"made no progress for {after:g} s"
                run.stuck = Ended(kind=FailureKind.STUCK, message=message)
            run.cancel("", task.kill_grace_seconds)
            return
        due = [] if task.timeout_seconds is None else [began + task.timeout_seconds]
        due += [] if after is None else [watch.changed_at + after]
        if not due:
            return
        await asyncio.sleep(max(0.0, min(due) - now))


def _stuck_after(executor: Executor, task: ExecutorTask) -> float | None:
    given = positive(task.configuration.get(STUCK_AFTER))
    if given is not None:
        return given
    estimate = executor.estimate_seconds(task)
    return None if estimate is None else STUCK_FACTOR * estimate


def executor_task(key: AttemptKey, attempt: NamedTaskAttempt, target: Target) -> ExecutorTask:
    """Return an attempt as its executor gets it."""
    spec = _spec.decode(attempt.spec)
    return ExecutorTask(
        key=key,
        task_uuid=attempt.task_id,
        named_task=task_name(attempt.namespace, attempt.name, attempt.version),
        arguments=spec.arguments,
        configuration=msgspec.json.decode(attempt.configuration),
        document=msgspec.json.encode(attempt).decode(),
        timeout_seconds=spec.timeout_seconds,
        kill_grace_seconds=spec.kill_grace_seconds,
        environment=spec.environment,
        working_directory=spec.working_directory,
        program=target.command,
        handler=target.handler,
    )


def _with_reason(ended: Ended, stopped: Ended | None) -> Ended:
    """Return the end of an attempt that was stopped, which is its reason and not what it returned."""
    if stopped is None:
        return ended
    how = (ended.message or "").removeprefix("cancelled").strip(" ()")
    message = f"{stopped.message} ({how})" if how else stopped.message
    ended.kind, ended.message, ended.result = stopped.kind, message, None
    return ended
