"""One task group in a program: an async context manager that creates, feeds, follows and ends it.

Its use resembles ``concurrent.futures``: ``submit`` returns a future, ``map`` the results. The calls of the
API are in ``client.py``.
"""

import asyncio
import weakref
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import (
    Any,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

import msgspec

from mitosis.client.creating import Planned, created
from mitosis.client.dispatch import Call, Dispatcher, calls_of
from mitosis.client.functions import RemoteFunction, remote_function
from mitosis.client.mapping import BUFFER_SIZE, Inputs, arguments_of, check_mapping, mapped
from mitosis.client.outcome import SetupFailed, TaskFailed
from mitosis.client.port import GroupCalls
from mitosis.client.submitting import Task, Tasks, encoded_task
from mitosis.client.task_future import TaskFuture, resolve_future
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.errors import InvalidRequest, InvalidTransition, MitosisError
from mitosis.contracts.http import (
    WAITING_SETUP_FAILED,
    ResultsPage,
    TaskGroupInfo,
    TaskInfo,
)
from mitosis.contracts.lifecycle import TaskState
from mitosis.handlers import TaskOptions

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")
As = TypeVarTuple("As")

OnExit = Literal["wait", "close", "leave"]
"""At the end of the ``with`` block: close and wait until it is settled; only close; leave it open."""
OnError = Literal["cancel", "close", "leave"]
"""When an exception (Ctrl-C too) leaves the block: cancel the group; only close it; leave it open."""

LONG_POLL = timedelta(seconds=30)
FIRST_LOOK = timedelta(seconds=1)
"""Until the first task has ended, the group itself is read too."""
CANCEL_SECONDS = 10.0
"""How long an exception is delayed by the call to cancel."""


class TaskGroup:
    """A task group that is open while its ``async with`` block runs. For one event loop only."""

    def __init__(
        self, client: GroupCalls, planned: Planned, *, on_exit: OnExit, on_error: OnError
    ) -> None:
        """Use :meth:`Client.task_group <mitosis.client.client.Client.task_group>`."""
        self._client = client
        self._planned = planned
        self._on_exit, self._on_error = on_exit, on_error
        self._info: TaskGroupInfo | None = None
        self._dispatcher: Dispatcher | None = None
        self._feeding: weakref.WeakSet[asyncio.Task[None]] = weakref.WeakSet()
        """The tasks that read inputs of maps; a program may not consume a map to its end."""
        self._functions: dict[Callable[..., Any], RemoteFunction] = {}

    @property
    def info(self) -> TaskGroupInfo:
        """The group as last returned by the API; :meth:`refresh` updates it."""
        return self._begun(self._info)

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of calls and results; the synchronous version uses it."""
        return self._begun(self._dispatcher)

    async def refresh(self) -> TaskGroupInfo:
        """Return the group as it is now."""
        self._info = await self._client.group(self.info.task_group_id)
        return self._info

    # --- functions

    @overload
    def submit(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskFuture[R]: ...
    @overload
    def submit(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskFuture[R]: ...
    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture[Any]:
        """Run ``function(*args, **kwargs)`` as a task; await the future for its return value.

        Returns at once; all calls before the next ``await`` of the program go in one request.
        The future raises :class:`~mitosis.client.outcome.TaskFailed` with the remote traceback.

        Raises:
            InvalidRequest: workers cannot import the function, or JSON cannot carry an argument.
        """
        return self._start(self.function(function), args, kwargs)

    def submit_after(
        self,
        after: Sequence[TaskFuture[Any] | int],
        function: Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> TaskFuture[Any]:
        """Run ``function(*args, **kwargs)`` when all tasks of ``after`` have succeeded.

        When one of them fails or is cancelled, the task is cancelled with the kind ``dependency_failed``.
        ``after`` has futures of this group, or numbers of tasks of any task group of the same user group.
        """
        return self._start(self.function(function), args, kwargs, calls_of(after))

    @overload
    def map(
        self,
        function: Callable[[A], Coroutine[Any, Any, R]],
        inputs: Inputs[A],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[R]: ...
    @overload
    def map(
        self,
        function: Callable[[A], R],
        inputs: Inputs[A],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[R]: ...
    @overload
    def map(
        self,
        function: Callable[[A], Coroutine[Any, Any, R]],
        inputs: Inputs[A],
        *,
        return_exceptions: bool,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[R | TaskFailed]: ...
    @overload
    def map(
        self,
        function: Callable[[A], R],
        inputs: Inputs[A],
        *,
        return_exceptions: bool,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[R | TaskFailed]: ...
    def map(
        self,
        function: Callable[..., Any],
        inputs: Inputs[Any],
        *,
        return_exceptions: bool = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[Any]:
        """Run ``function(x)`` as a task for every input; iterate over the results in input order.

        Reads the inputs lazily: at most ``buffer_size`` ahead of the consumed results.

        Args:
            function: a module-level function, preferably with ``@handler``; not a lambda.
            inputs: any iterable, or an async one.
            return_exceptions: return a failed task as a :class:`~mitosis.client.outcome.TaskFailed`
                among the results, instead of raising it.
            ordered: False returns each result as soon as it is available.
            buffer_size: see above.
            **options: ``timeout``, ``retries``, ``priority``, …: :class:`~mitosis.handlers.TaskOptions`.

        Raises:
            InvalidRequest: workers cannot import the function, or JSON cannot carry an argument.
            TaskFailed: a task failed; its cause is the traceback of the worker.
        """
        check_mapping(inputs, buffer_size, (Iterable, AsyncIterable))
        calls = ((item,) for item in inputs) if isinstance(inputs, Iterable) else _tuples(inputs)
        return self.starmap(
            function,
            calls,
            return_exceptions=return_exceptions,
            ordered=ordered,
            buffer_size=buffer_size,
            **options,
        )

    @overload
    def starmap(
        self,
        function: Callable[[Unpack[As]], Coroutine[Any, Any, R]],
        inputs: Inputs[tuple[*As]],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[R]: ...
    @overload
    def starmap(
        self,
        function: Callable[[Unpack[As]], R],
        inputs: Inputs[tuple[*As]],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[R]: ...
    @overload
    def starmap(
        self,
        function: Callable[..., Any],
        inputs: Inputs[tuple[Any, ...]],
        *,
        return_exceptions: bool = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[Any]: ...
    def starmap(
        self,
        function: Callable[..., Any],
        inputs: Inputs[tuple[Any, ...]],
        *,
        return_exceptions: bool = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> AsyncIterator[Any]:
        """Map a function of several arguments, as in ``starmap(f, zip(xs, ys))``; see :meth:`map`."""
        check_mapping(inputs, buffer_size, (Iterable, AsyncIterable))
        remote = self.function(function, **options)
        return mapped(
            lambda args: self._start(remote, arguments_of(args), {}),
            inputs,
            ordered=ordered,
            return_exceptions=return_exceptions,
            buffer_size=buffer_size,
            on_feeding=self._feeding.add,
        )

    def function(
        self, function: Callable[..., Any], **options: Unpack[TaskOptions]
    ) -> RemoteFunction:
        """Check that the workers of this group can import a function; the result is cached.

        Raises:
            InvalidRequest: they cannot; says what to do instead.
        """
        if self.info.kind == "service":
            raise InvalidRequest(
                "a task group of the kind service executes named tasks, not functions: submit_task"
                '({"named_task": "images/resize@1.4.0", "arguments": …})',
                field="function",
            )
        if not options and (known := self._functions.get(function)) is not None:
            return known
        path = self.info.worker_allocation_plan.python_path
        remote = remote_function(function, path, options)
        if not options:
            self._functions[function] = remote
        return remote

    def _start(
        self,
        remote: RemoteFunction,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        after: Sequence[Call | int] = (),
    ) -> TaskFuture[Any]:
        return self._call(remote.task(args, kwargs), remote.result, after)

    # --- tasks of any kind

    def submit_task(
        self, task: Task, *, after: Sequence[TaskFuture[Any] | int] = ()
    ) -> TaskFuture[TaskInfo]:
        """Run a task; the future returns its outcome and raises for no failure of the task.

        Returns at once, as :meth:`submit` does. ``after``: it starts when these have succeeded; see
        :meth:`submit_after`.
        """
        return self._call(encoded_task(task, "task"), lambda ended: ended, calls_of(after))

    async def submit_tasks(
        self, tasks: Tasks, *, idempotency_key: str | None = None, require_worker: bool = False
    ) -> list[int]:
        """Submit any number of tasks, lazily; return their ids. See :meth:`Client.submit`."""
        group = self.info.task_group_id
        return await self._client.submit(
            group, tasks, idempotency_key=idempotency_key, require_worker=require_worker
        )

    async def results(self, *, after: int = 0) -> AsyncIterator[TaskInfo]:
        """Iterate over tasks as they end, each once, until no task of the group is unfinished.

        They come in the order in which they were recorded; pass the last ``seq`` as ``after`` to continue.
        """
        await self.dispatcher.submitted()
        wait = timedelta()
        while True:
            page = await self._page(after, wait)
            for task in page.items:
                yield task
            after = page.after
            drained = not self.info.tasks_unfinished and _ended(self.info) <= after
            if page.finished or (not page.items and drained):
                return
            wait = timedelta() if page.items else LONG_POLL

    async def _page(self, after: int, wait: timedelta = LONG_POLL) -> ResultsPage:
        """Return the results after the ``after``-th; without any, read the group again.

        Raises:
            SetupFailed: no result can come.
        """
        if not after:  # no result yet: the setup may have failed
            wait = min(wait, FIRST_LOOK)
        page = await self._client.results_page(self.info.task_group_id, after=after, wait=wait)
        if not page.items or any(task.state is TaskState.CANCELLED for task in page.items):
            _check_setup(await self.refresh())
        return page

    def _call(
        self,
        task: msgspec.Raw,
        convert: Callable[[TaskInfo], Any],
        after: Sequence[Call | int] = (),
    ) -> TaskFuture[Any]:
        future: TaskFuture[Any] = TaskFuture()

        def deliver(ended: TaskInfo | Exception) -> None:
            if future.done():  # the future was cancelled
                return
            resolve_future(future, ended, convert)
            future.exception()  # retrieved, so asyncio logs nothing when the program ignores the future

        call = Call(task, deliver, after)
        future.withdraw = partial(self.dispatcher.withdraw, call)
        future.call = call
        self.dispatcher.add(call)
        return future

    # --- ending

    async def close(self, *, reason: str | None = None) -> TaskGroupInfo:
        """Close the group after the tasks that were submitted here."""
        await self.dispatcher.submitted()
        self._info = await self._client.close_group(self.info.task_group_id, reason=reason)
        return self._info

    async def cancel(
        self, *, reason: str | None = None, grace: timedelta | None = None
    ) -> TaskGroupInfo:
        """Cancel the group; running tasks are stopped with grace."""
        self._info = await self._client.cancel(self.info.task_group_id, reason=reason, grace=grace)
        return self._info

    async def __aenter__(self) -> Self:
        self._info = info = await created(self._client, self._planned)
        group = info.task_group_id
        self._dispatcher = Dispatcher(
            lambda part: self._client.submit_part(group, part),
            self._page,
            lambda tasks: self._client.cancel_tasks(group, tasks),
            _ended(info),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                await self._end_after(error)
                return
            try:
                await self._end()
            except BaseException as problem:
                await self._end_after(problem)
                raise
        finally:
            for feeding in list(self._feeding):
                await cancel_and_wait(feeding)
            await self.dispatcher.aclose()

    async def _end(self) -> None:
        await self.dispatcher.submitted()
        await self.dispatcher.withdrawals.sent()
        if self._on_exit == "leave":
            return
        with suppress(InvalidTransition):  # another caller has ended it
            await self.close()
        if self._on_exit == "wait":
            await self.dispatcher.delivered()
            while not self.info.settled:
                _check_setup(self.info)
                wait = LONG_POLL if _ended(self.info) else FIRST_LOOK
                self._info = await self._client.wait(self.info.task_group_id, timeout=wait)
            _check_setup(self.info)

    async def _end_after(self, error: BaseException) -> None:
        """Cancel or close the group; the caller re-raises the exception."""
        if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            self.dispatcher.withdrawals.drop()  # the program only waited for these
        else:
            await self.dispatcher.withdrawals.sent()
        if self._on_error == "leave":
            return
        reason = _reason(error)
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                if self._on_error == "close":
                    await self.close(reason=reason)
                else:
                    await self.cancel(reason=reason)
        except InvalidTransition:
            return  # another caller has ended it
        except (MitosisError, TimeoutError) as problem:
            why = str(problem) or "the API does not answer"
            error.add_note(f"the task group {self.info.name} continues: {why}")

    def _begun(self, value: R | None) -> R:
        if value is None:
            raise RuntimeError("use the task group in a with block: with client.task_group() as …")
        return value


def _reason(error: BaseException) -> str:
    """Return a reason without the text of the error, which readers of the group may not be allowed to see."""
    if isinstance(error, SetupFailed):
        return error.message
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return "the program that submits was interrupted"
    return f"{type(error).__name__} in the program that submits"


def _check_setup(info: TaskGroupInfo) -> None:
    why = (info.reason if info.setup_failed else info.waiting_for) or ""
    waits = info.tasks_unfinished and why.startswith(WAITING_SETUP_FAILED)
    if info.setup_failed or waits:
        raise SetupFailed(why, hook_runs=[run.model_dump(mode="json") for run in info.hook_runs])


async def _tuples(inputs: Any) -> AsyncIterator[tuple[Any]]:
    async for item in inputs:
        yield (item,)


def _ended(info: TaskGroupInfo) -> int:
    """Return the number of ended tasks: that of the last result."""
    return info.tasks_total - info.tasks_unfinished
