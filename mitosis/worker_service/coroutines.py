"""Executes `async def` handlers in one event loop, which has a thread of its own.

So a handler that blocks delays other handlers, not the heartbeats of the process. One that ends the loop, by
``sys.exit()`` in a task of its own or by ``loop.stop()``, ends nothing else: the loop runs again. A loop that
cannot run again, as one that is closed, is reported to the caller of :meth:`CoroutineThread.start`.
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
from pathlib import Path
from typing import Any

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.run_spec import RunSpec
from mitosis.worker.context import TaskContext, task_context, task_of_coroutine
from mitosis.worker.report import Ended, ResultError, encode_result

Function = Callable[..., Awaitable[Any]]
CLOSE_SECONDS = 5.0
log = logging.getLogger(__name__)


def are_coroutines(functions: Mapping[str, Callable[..., object]]) -> bool:
    """Return whether each of these handlers is an ``async def`` function, and there is one."""
    return bool(functions) and all(
        inspect.iscoroutinefunction(inspect.unwrap(function)) for function in functions.values()
    )


def timeout_text(seconds: float | None) -> str:
    """Return the message of a handler that ran longer than this."""
    return f"ran longer than its timeout of {seconds:g} s"


def call_soon(
    loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object
) -> None:
    """Call this in the loop, from any thread; never if it is closed, which its thread reports."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


class HandlerRun:
    """One call of a handler."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.cancelled_for: str | None = None
        """Why it is cancelled, if it is."""
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self._loop = loop

    def cancel(self, message: str) -> None:
        """Cancel the coroutine, from any thread. Another call changes nothing."""
        if self.cancelled_for is None:
            self.cancelled_for = message
            call_soon(self._loop, self._cancel)

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


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
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._closing = False

    def start(self, lost: Callable[[], object]) -> None:
        """Start the thread; ``lost`` is called in it if the loop cannot run any more."""
        self._thread = threading.Thread(
            target=self._serve, args=(lost,), name="handlers", daemon=True
        )
        self._thread.start()

    def run(self, key: AttemptKey, spec: RunSpec, ended: Callable[[Ended], None]) -> HandlerRun:
        """Call a handler; ``ended`` is called once, in the thread of the handlers."""
        run = HandlerRun(self._loop)

        def end(how: Ended) -> None:
            if not run.is_over:  # a handler that cancels all tasks of its loop ends twice
                run.is_over = True
                ended(how)

        async def execute() -> None:
            end(await self._execute(run, key, spec))

        def is_over(task: asyncio.Task[None]) -> None:
            if task.cancelled():  # before its first step: nothing of it has run
                now, why = time.time(), run.cancelled_for or "cancelled"
                how = Ended(kind=FailureKind.CANCELLED, message=why)
                how.started_at = how.finished_at = now
                end(how)

        def begin() -> None:
            run.task = self._loop.create_task(execute())
            run.task.add_done_callback(is_over)

        call_soon(self._loop, begin)
        return run

    def call_if_blocked(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this in the running loop unless the thread of the handlers answers within ``seconds``."""
        ours = asyncio.get_running_loop()
        later = ours.call_later(seconds, call)
        call_soon(self._loop, call_soon, ours, later.cancel)

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
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _execute(self, run: HandlerRun, key: AttemptKey, spec: RunSpec) -> Ended:
        folder = self._scratch / f"{key.task_id}-{key.attempt}"
        started_at = time.time()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            task_of_coroutine.set(_context(key, spec, folder))
            ended = await self._call(run, spec)
        except OSError as error:
            ended = Ended(kind=FailureKind.NOT_STARTED, message=f"{folder}: {error.strerror}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        ended.started_at, ended.finished_at = started_at, time.time()
        return ended

    async def _call(self, run: HandlerRun, spec: RunSpec) -> Ended:
        function = self._functions[spec.handler or ""]
        limit = asyncio.timeout(spec.timeout_seconds)
        try:
            async with limit:
                result = await _applied(function, spec.arguments)
            return Ended(result=encode_result(result))
        except ResultError as error:
            return Ended(kind=FailureKind.RESULT_NOT_STORABLE, message=str(error))
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            if run.cancelled_for is not None:
                return Ended(kind=FailureKind.CANCELLED, message=run.cancelled_for)
            if limit.expired():
                return Ended(kind=FailureKind.TIMEOUT, message=timeout_text(spec.timeout_seconds))
            message = "".join(traceback.format_exception_only(error)).strip()
            if isinstance(error, SystemExit):  # as the worker of an agent says it
                message = f"called sys.exit({error.code!r})"
            return Ended(
                kind=FailureKind.HANDLER_ERROR,
                message=message,
                traceback="".join(traceback.format_exception(error)),
            )


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
