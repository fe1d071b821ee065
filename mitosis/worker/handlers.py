"""Handler tasks: ``module:function`` called with JSON arguments, in the worker's main thread.

The worker has no other thread, so an interval timer interrupts the handler between two bytecodes. Each
tick lets the worker exchange messages with its agent, frees the memory of long output, and stops a
handler whose time is over. A handler is stopped in two steps, as a command is:

1. :class:`TaskInterrupted` is raised inside it. It derives from BaseException, so that ``except
   Exception`` does not swallow it, and ``finally`` blocks run. A coroutine is cancelled instead.
2. After the grace the worker reports the attempt and exits, since Python code cannot be stopped
   otherwise. A handler inside C code that never returns gets neither step: the agent kills its worker
   when it is overdue (``TaskStarted.overdue_seconds``, or the grace of a CancelTask).

The timer is ITIMER_REAL, so handlers must not use SIGALRM; one that does cannot be stopped this way. It
repeats by itself: an alarm just before a handler's system call does not interrupt it, the next one does.
"""

import asyncio
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from signal import setitimer  # before ProcessState watches it
from types import FrameType
from typing import Any

from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.task import TaskSpec
from mitosis.worker.handler_place import HandlerPlace
from mitosis.worker.output import MemoryOutput
from mitosis.worker.process_state import ProcessState
from mitosis.worker.report import Ended, ResultError, Usage, encode_result, ended_by_exit
from mitosis.worker.stopping import Stop

_FIRST_TICK_SECONDS = 0.005
_TICK_SECONDS = 0.05
_AGAIN_SECONDS = 0.5
"""Until the next alarm when one had no effect; each interrupts a system call of code in C."""


class TaskInterrupted(BaseException):
    """Raised inside a handler that was cancelled or ran longer than its timeout."""


class HandlerNotFound(Exception):
    """There is no such module or function, or the module cannot be imported."""


class HandlerRegistry:
    """Finds handlers by name, each once."""

    def __init__(self) -> None:
        self._known: dict[str, Callable[..., Any]] = {}

    def knows(self, name: str) -> bool:
        """Whether :meth:`find` imports nothing."""
        return name in self._known

    def find(self, name: str) -> Callable[..., Any]:
        """Return the function ``module:function``.

        Raises:
            HandlerNotFound: names the wrong part; its cause is the error of the import.
        """
        if (known := self._known.get(name)) is None:
            known = self._known[name] = _resolve(name)
        return known


def _resolve(name: str) -> Callable[..., Any]:
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except TaskInterrupted:
        raise
    except BaseException as error:
        what = f"cannot import {module_name}: {type(error).__name__}: {error}"
        raise HandlerNotFound(what) from error
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise HandlerNotFound(f"{module_name} has no {path}") from None
    if not callable(found):
        raise HandlerNotFound(f"{name} is not callable")
    return found  # type: ignore[no-any-return]


class HandlerSlot:
    """Runs the handlers of one worker, one after the other. Main thread only."""

    def __init__(
        self,
        streams: tuple[MemoryOutput, MemoryOutput],
        on_tick: Callable[[], None],
        on_stuck: Callable[[Ended], None],
    ) -> None:
        """Install the handler of SIGALRM.

        Args:
            streams: stdout and stderr of the handlers.
            on_tick: called between two bytecodes of a running handler; may call :meth:`stop`.
            on_stuck: called when a handler still runs after its grace; must not return.
        """
        self._registry = HandlerRegistry()
        self.streams = streams
        self.spoiled: str | None = None
        """What the last handler has left in this process and cannot be removed: run no other task in it."""
        self._on_tick, self._on_stuck = on_tick, on_stuck
        self._running = False
        self._ticking = False
        self._spec = TaskSpec()
        self._started_at = 0.0
        self._timeout_at: float | None = None
        self._stop: Stop | None = None
        self._raised = False
        self._import_failed = False
        self._cancel_coroutine: Callable[[], object] | None = None
        signal.signal(signal.SIGALRM, self._on_alarm)
        self._place = HandlerPlace(streams)
        self.state = ProcessState(crash_fd=streams[1].fd)

    def set_tail_bytes(self, tail_bytes: int) -> None:
        for stream in self.streams:
            stream.tail_bytes = tail_bytes

    def run(self, spec: TaskSpec, variables: Mapping[str, str], folder: str) -> Ended:
        """Call the handler of ``spec`` with ``variables`` in ``os.environ``; return how it ended."""
        self._spec, self._stop, self._raised = spec, None, False
        self._import_failed = False
        self._started_at = time.time()
        timeout = spec.timeout_seconds
        self._timeout_at = None if timeout is None else time.monotonic() + timeout
        began, meter = time.monotonic(), _Meter()
        ended = None
        try:
            with self._place.of(spec, variables, folder) as failure:
                ended = failure or self._guarded()
                self.state.raise_file_limit()
            ended.mask = os.sched_getaffinity(0)
            self.spoiled = self.state.restore(time.monotonic() - began)
        except Exception as error:
            if ended is None:
                raise
            self.spoiled = f"a process that cannot be put in order ({error})"
        if self.spoiled is not None and self._import_failed:
            self.spoiled = f"{self.spoiled}, by an import that failed"
        return self._complete(ended, meter.usage())

    def stop(self, kind: FailureKind, message: str, grace_seconds: float | None = None) -> None:
        """Stop the running handler; a second call can only shorten the grace."""
        grace = self._spec.kill_grace_seconds if grace_seconds is None else grace_seconds
        if self._stop is None:
            self._stop = Stop.begin(kind, message, grace)
        else:
            self._stop.shorten(grace)

    def _guarded(self) -> Ended:
        """Call the handler with the timer running; catch everything that it raises."""
        try:
            try:
                self._running = True
                self._arm(_FIRST_TICK_SECONDS)
                return self._call()
            finally:
                self._running = False
                setitimer(signal.ITIMER_REAL, 0)
        except TaskInterrupted:
            self._running = False  # the tick may have come before the first line of ``finally``
            setitimer(signal.ITIMER_REAL, 0)
            return self._interrupted()

    def _call(self) -> Ended:
        spec = self._spec
        assert spec.handler is not None  # noqa: S101 - the caller chose by it
        try:
            function = self._find(spec.handler)
            result = copy_context().run(_apply, function, spec.arguments)
            if asyncio.iscoroutine(result):
                result = asyncio.run(self._follow(result))
            return Ended(result=encode_result(result))
        except TaskInterrupted:
            raise
        except HandlerNotFound as error:
            cause = error.__cause__
            return Ended(
                kind=FailureKind.NOT_STARTED,
                message=str(error),
                traceback=_traceback(cause) if cause is not None else None,
            )
        except ResultError as error:
            return Ended(kind=FailureKind.RESULT_NOT_STORABLE, message=str(error))
        except SystemExit as error:
            return ended_by_exit(error, _traceback(error))
        except KeyboardInterrupt as error:  # as a command that dies of SIGINT
            return Ended(
                kind=FailureKind.SIGNAL,
                signal=signal.SIGINT,
                message="ended by SIGINT",
                traceback=_traceback(error),
            )
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, the worker continues
            message = "".join(traceback.format_exception_only(error)).strip()
            return Ended(
                kind=FailureKind.HANDLER_ERROR, message=message, traceback=_traceback(error)
            )

    def _find(self, name: str) -> Callable[..., Any]:
        """Return the handler; what its first import changes stays, as if the zygote had imported it."""
        if self._registry.knows(name):
            return self._registry.find(name)
        self._import_failed = True
        with self._place.keeping_changes(), self.state.keeping_changes():
            found = self._registry.find(name)
        self._import_failed = False
        return found

    async def _follow(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        self._cancel_coroutine = lambda: loop.call_soon_threadsafe(task.cancel)
        _own_decimal_context()
        try:
            return await coroutine
        finally:
            self._cancel_coroutine = None

    def _interrupted(self) -> Ended:
        stop = self._stop
        if stop is None:
            return Ended(
                kind=FailureKind.HANDLER_ERROR, message="the handler raised TaskInterrupted"
            )
        return Ended(kind=stop.kind, message=stop.message)

    def _complete(self, ended: Ended, usage: Usage) -> Ended:
        if self._raised and self._stop is not None and ended.kind is not self._stop.kind:
            # It caught TaskInterrupted and returned or raised something else.
            ended = Ended(
                kind=self._stop.kind, message=self._stop.message, traceback=ended.traceback
            )
        ended.started_at, ended.finished_at, ended.usage = self._started_at, time.time(), usage
        with suppress(OSError):  # it has closed them
            ended.stdout, ended.stderr = (stream.take() for stream in self.streams)
        return ended

    def _arm(self, seconds: float) -> None:
        now = time.monotonic()
        due = self._stop.deadline if self._stop is not None else self._timeout_at
        if due is not None:
            seconds = max(0.001, min(seconds, due - now))
        setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        if not self._running or self._ticking:
            return
        self._ticking = True
        try:
            self._tick()
        finally:
            self._ticking = False

    def _tick(self) -> None:
        self._on_tick()
        with suppress(OSError):  # it has closed them
            for stream in self.streams:
                stream.trim()
        now = time.monotonic()
        if self._stop is None and self._timeout_at is not None and now >= self._timeout_at:
            seconds = self._spec.timeout_seconds
            self.stop(FailureKind.TIMEOUT, f"ran longer than its timeout of {seconds:g} s")
        if self._stop is not None and self._raised and self._stop.is_due:
            self._give_up(self._stop)
        self._arm(_TICK_SECONDS)
        if self._stop is not None and not self._raised:
            self._raised = True
            if self._cancel_coroutine is None:
                raise TaskInterrupted(self._stop.message)
            self._cancel_coroutine()

    def _give_up(self, stop: Stop) -> None:
        self._on_stuck(
            Ended(
                kind=stop.kind,
                message=f"{stop.message}; the handler went on and its worker was ended",
                started_at=self._started_at,
                finished_at=time.time(),
                stdout=self.streams[0].take(),
                stderr=self.streams[1].take(),
            )
        )


def _apply(function: Callable[..., Any], arguments: dict[str, Any] | list[Any] | None) -> Any:
    _own_decimal_context()
    if isinstance(arguments, dict):
        return function(**arguments)
    return function(*(arguments or ()))


def _own_decimal_context() -> None:
    """Copy the context of decimal arithmetic, which is one object in every copy of the variables."""
    if (decimal := sys.modules.get("decimal")) is not None:
        decimal.setcontext(decimal.getcontext().copy())


def _traceback(error: BaseException) -> str:
    """Format the traceback without the frames of this module, unless it has no others."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        if frames.tb_frame.f_code.co_filename != __file__:
            break
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


class _Meter:
    """Measures the CPU time of one handler, its threads, and the children it waited for.

    RUSAGE_SELF costs several microseconds in a process with threads, so the sum comes from
    CLOCK_PROCESS_CPUTIME_ID; system time in other threads than the handler's counts as user time.
    """

    def __init__(self) -> None:
        self._own = resource.getrusage(resource.RUSAGE_THREAD)
        self._children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._all_threads = time.process_time()

    def usage(self) -> Usage:
        both = time.process_time() - self._all_threads
        own = resource.getrusage(resource.RUSAGE_THREAD)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        system = min(both, own.ru_stime - self._own.ru_stime)
        return Usage(
            user_seconds=round(both - system + children.ru_utime - self._children.ru_utime, 6),
            system_seconds=round(system + children.ru_stime - self._children.ru_stime, 6),
            max_rss_bytes=own.ru_maxrss * 1024,
        )
