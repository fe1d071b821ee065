"""Executes `async def` handlers in one event loop, which has a thread of its own.

So a handler that blocks delays other handlers, not the heartbeats of the process. One that ends the loop, by
``sys.exit()`` in a task of its own or by ``loop.stop()``, ends nothing else: the loop runs again. A loop that
cannot run again, as one that is closed, is reported to the caller of :meth:`CoroutineThread.start`.

A handler that cancels all tasks of the loop cancels the handlers beside it. Those that have begun fail, since
such a cancel looks like a CancelledError of their own. Those that have not begun begin in another task.
"""

import asyncio
import inspect
import logging
import shutil
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.run_spec import RunSpec
from mitosis.worker.context import TaskContext, task_context, task_of_coroutine
from mitosis.worker.report import Ended, ResultError, encode_result, ended_by_exit

Function = Callable[..., Awaitable[Any]]
CLOSE_SECONDS = 5.0
log = logging.getLogger(__name__)


def are_coroutines(functions: Mapping[str, Callable[..., object]]) -> bool:
    """Return whether each of these handlers is an ``async def`` function, and there is one."""
    return bool(functions) and all(
        inspect.iscoroutinefunction(inspect.unwrap(function)) for function in functions.values()
    )


def call_soon(
    loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object
) -> None:
    """Call this in the loop, from any thread; never if it is closed, which its thread reports."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


class HandlerRun:
    """One call of a handler."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout_seconds: float | None,
        ended: Callable[[Ended], object],
    ) -> None:
        self.cancelled_for: str | None = None
        """Why it is cancelled, if it is, unless its time was over before."""
        self.began_at: float | None = None
        """The time of its first step; None before. What is cancelled then never begins."""
        self.task: asyncio.Task[None] | None = None
        self._loop = loop
        self._timeout_seconds = timeout_seconds
        self._timeout_at: float | None = None
        """Monotonic; None without a timeout, and before its first step."""
        self._ended = ended
        self._is_cancelled = self._is_over = False

    def begin(self) -> None:
        """Note the time of its first step."""
        self.began_at = time.time()
        if self._timeout_seconds is not None:
            self._timeout_at = time.monotonic() + self._timeout_seconds

    def cancel(self, message: str, grace_seconds: float = 0.0) -> None:
        """Cancel the coroutine, from any thread. Another call changes nothing."""
        del grace_seconds  # how long it is waited for is the caller's
        if self._is_cancelled:
            return
        self._is_cancelled = True
        if self.stopped() is None:  # as on a host, what stops it first is why it ended
            self.cancelled_for = message
        call_soon(self._loop, self._cancel)

    def stopped(self) -> Ended | None:
        """Return how its cancel or timeout ends it, also if it returns or raises later; None without one."""
        if self.cancelled_for is not None:
            return Ended(kind=FailureKind.CANCELLED, message=self.cancelled_for)
        if self._timeout_at is not None and time.monotonic() >= self._timeout_at:
            message = f"ran longer than its timeout of {self._timeout_seconds:g} s"
            return Ended(kind=FailureKind.TIMEOUT, message=message)
        return None

    def overdue(self) -> Ended:
        """Return how it is reported when it goes on after its cancel or timeout."""
        how = self.stopped()
        assert how is not None  # noqa: S101 - it is overdue
        how.finished_at = time.time()
        if self.began_at is None:
            how.started_at = how.finished_at
        else:
            how.started_at, how.message = self.began_at, f"{how.message}; the handler went on"
        return how

    def end(self, how: Ended) -> None:
        """Call ``ended``, once: a handler that cancels all tasks of its loop ends twice."""
        if not self._is_over:
            self._is_over = True
            self._ended(how)

    def not_begun(self) -> Ended:
        """Return the end of what was cancelled before its first step: nothing of it has run."""
        how = Ended(kind=FailureKind.CANCELLED, message=self.cancelled_for)
        how.started_at = how.finished_at = time.time()
        return how

    def was_prevented(self, task: asyncio.Task[None]) -> bool:
        """Return whether another handler has cancelled the task that executes it, before its first step."""
        return task.cancelled() and self.began_at is None and self.cancelled_for is None

    def end_with(self, task: asyncio.Task[None]) -> None:
        """End with the task that executes it, if neither the handler nor its error has."""
        if task.cancelled():
            self.end(self.not_begun())
        elif (error := task.exception()) is not None:
            message = f"its end could not be described: {_text(error)}"
            how = Ended(kind=FailureKind.HANDLER_ERROR, message=message)
            how.started_at, how.finished_at = self.began_at, time.time()
            self.end(how)

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


_run: ContextVar[HandlerRun | None] = ContextVar("_run", default=None)
"""The call of a handler that the current task of the event loop works for."""


class _Task(asyncio.Task[Any]):
    """A task of the event loop of the handlers, which knows the handler that created it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.run = _run.get()
        super().__init__(*arguments, **named)


class CoroutineThread:
    """The event loop of the handlers."""

    def __init__(self, functions: Mapping[str, Function], scratch: Path) -> None:
        """Start nothing.

        Args:
            functions: each handler by its name.
            scratch: gets a folder for each attempt, removed after it.
        """
        self._functions = functions
        self._scratch = scratch
        self.loop = self._loop = asyncio.new_event_loop()
        """That of the handlers, in a thread of its own."""
        self._loop.set_task_factory(
            lambda loop, coroutine, **named: _Task(coroutine, loop=loop, **named)
        )
        self._thread: threading.Thread | None = None
        self._closing = False

    def start(self, lost: Callable[[], object]) -> None:
        """Start the thread; ``lost`` is called in it if the loop cannot run any more."""
        self._thread = threading.Thread(
            target=self._serve, args=(lost,), name="handlers", daemon=True
        )
        self._thread.start()

    def run(
        self,
        key: AttemptKey,
        spec: RunSpec,
        ended: Callable[[Ended], object],
        began: Callable[[], object] | None = None,
    ) -> HandlerRun:
        """Call a handler.

        Args:
            key: of the attempt.
            spec: what it calls.
            ended: called once, in the thread of the handlers, unless the event loop is lost.
            began: called at its first step, in the thread of the handlers; not if it is cancelled before.
        """
        run = self.new_run(self._loop, spec, ended)

        async def execute() -> None:
            if run.cancelled_for is not None:
                run.end(run.not_begun())
                return
            run.begin()
            if began is not None:
                began()
            run.end(await self.execute(run, key, spec))

        def begin() -> None:
            run.task = _Task(execute(), loop=self._loop)  # a handler may set another factory
            run.task.add_done_callback(end)

        def end(task: asyncio.Task[None]) -> None:
            if run.was_prevented(task):
                begin()
            else:
                run.end_with(task)

        call_soon(self._loop, begin)
        return run

    def new_run(
        self, loop: asyncio.AbstractEventLoop, spec: RunSpec, ended: Callable[[Ended], object]
    ) -> HandlerRun:
        """Return what the calls of :meth:`run` are known by; subclasses make their own."""
        return HandlerRun(loop, spec.timeout_seconds, ended)

    def executes(self, run: HandlerRun) -> bool:
        """Return whether the event loop executes a step of this handler now, or of a task it created."""
        task = asyncio.current_task(self._loop)
        return task is not None and (task is run.task or getattr(task, "run", None) is run)

    def ping(self) -> threading.Event:
        """Return what is set as soon as the event loop has ended the step that it executes."""
        answered = threading.Event()
        call_soon(self._loop, answered.set)
        return answered

    def close(self) -> None:
        """Stop the loop; a handler that blocks it is left behind."""
        self._closing = True
        if self._thread is not None and self._thread.is_alive():
            call_soon(self._loop, self._loop.stop)
            self._thread.join(CLOSE_SECONDS)

    def _serve(self, lost: Callable[[], object]) -> None:
        while not self._closing:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # asyncio lets both through
                log.warning("handler.stopped_loop", extra={"reason": repr(error)})
            except Exception as error:  # noqa: BLE001 - closed, or its descriptors are
                log.error("handlers.lost", extra={"reason": repr(error)})  # noqa: TRY400
                lost()
                return
            else:
                if not self._closing:
                    log.warning("handler.stopped_loop", extra={"reason": "loop.stop()"})
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self.finish())
        self._loop.close()

    async def finish(self) -> None:
        """Give the cancelled handlers their last step."""
        await asyncio.sleep(0)

    async def execute(self, run: HandlerRun, key: AttemptKey, spec: RunSpec) -> Ended:
        """Execute an attempt in its private folder; return how it ended."""
        folder = self._scratch / f"{key.task_id}-{key.attempt}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            ended = Ended(kind=FailureKind.NOT_STARTED, message=f"{folder}: {error.strerror}")
        else:
            ended = await self.call(run, key, spec, folder)
        finally:
            with suppress(Exception):  # as RecursionError
                shutil.rmtree(folder, ignore_errors=True)
        ended.started_at, ended.finished_at = run.began_at, time.time()
        return ended

    async def call(self, run: HandlerRun, key: AttemptKey, spec: RunSpec, folder: Path) -> Ended:
        """Execute an attempt; subclasses have executors in the place of handlers."""
        try:
            task_of_coroutine.set(_context(key, spec, folder))
            function = self._functions[spec.handler or ""]
        except Exception as error:  # noqa: BLE001 - variables of the task, its handler
            return Ended(kind=FailureKind.NOT_STARTED, message=f"{folder}: {_text(error)}")
        _run.set(run)
        try:
            async with asyncio.timeout(spec.timeout_seconds):
                result = await _applied(function, spec.arguments)
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            return run.stopped() or failed(error)
        return run.stopped() or _returned(result)


def _returned(result: Any) -> Ended:
    try:
        return Ended(result=encode_result(result))
    except ResultError as error:
        return Ended(kind=FailureKind.RESULT_NOT_STORABLE, message=str(error))
    except BaseException as error:  # noqa: BLE001 - code of the handler may encode it, as an iterator
        return failed(error)


def failed(error: BaseException) -> Ended:
    """Return the end of what has raised this."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, SystemExit):
        return ended_by_exit(error, text)
    return Ended(kind=FailureKind.HANDLER_ERROR, message=_text(error), traceback=text)


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


async def _applied(function: Function, arguments: dict[str, Any] | list[Any] | None) -> Any:
    if isinstance(arguments, dict):
        return await function(**arguments)
    return await function(*(arguments or ()))


def _context(key: AttemptKey, spec: RunSpec, folder: Path) -> TaskContext:
    return task_context(
        {
            **spec.variables,
            "MITOSIS_TASK_ID": str(key.task_id),
            "MITOSIS_TASK_ATTEMPT": str(key.attempt),
            "MITOSIS_GROUP_NAME": "",
            "MITOSIS_EXEC_DIR": str(folder),
        }
    )
