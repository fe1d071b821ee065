"""The synchronous version of :class:`~mitosis.client.task_group.TaskGroup`, for ``with``."""

import queue
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from datetime import timedelta
from threading import Lock
from types import TracebackType
from typing import (
    Any,
    Literal,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

import msgspec

from mitosis.client.dispatch import Call, calls_of
from mitosis.client.functions import RemoteFunction
from mitosis.client.loop_thread import LoopThread
from mitosis.client.mapping import BUFFER_SIZE, arguments_of, check_mapping
from mitosis.client.outcome import TaskFailed
from mitosis.client.parameters import check_tasks
from mitosis.client.port import Group, GroupCalls
from mitosis.client.submitting import Task, Tasks, encoded_task
from mitosis.client.task_future import resolve_future
from mitosis.client.task_group import TaskGroup
from mitosis.contracts.http import TaskGroupInfo, TaskInfo
from mitosis.handlers import TaskOptions

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")
As = TypeVarTuple("As")


class SyncTaskFuture(Future[R]):
    """The result of one task; works with :mod:`concurrent.futures`.

    :meth:`cancel` cancels the task too, also while it runs: it is stopped with the grace of the group.
    """

    task: TaskInfo | None = None
    """The task with all its details, once it has ended."""
    withdraw: Callable[[], None] | None = None
    """Cancels the task."""
    call: Call | None = None
    """Its call, which others may depend on."""

    def __init__(self) -> None:
        super().__init__()
        self._ending = Lock()

    def cancel(self) -> bool:
        """Cancel future and task; return False if the task has ended."""
        with self._ending:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()
        if self.withdraw is not None:
            self.withdraw()
        return True

    def begin_result(self) -> bool:
        """Return whether the result is wanted; from then on :meth:`cancel` returns False."""
        with self._ending:
            return not self.cancelled() and self.set_running_or_notify_cancel()


class SyncTaskGroup:
    """A synchronous :class:`~mitosis.client.task_group.TaskGroup`."""

    def __init__(self, loop: LoopThread, group: TaskGroup) -> None:
        """Use :meth:`SyncClient.task_group <mitosis.client.sync.SyncClient.task_group>`."""
        self._loop, self._group = loop, group

    @property
    def info(self) -> TaskGroupInfo:
        """The group as last returned by the API; :meth:`refresh` updates it."""
        return self._group.info

    def refresh(self) -> TaskGroupInfo:
        """Return the group as it is now."""
        return self._loop.run(self._group.refresh())

    # --- functions

    @overload
    def submit(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncTaskFuture[R]: ...
    @overload
    def submit(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncTaskFuture[R]: ...
    def submit(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> SyncTaskFuture[Any]:
        """Run ``function(*args, **kwargs)`` as a task; ``future.result()`` returns its return value.

        Raises:
            InvalidRequest: workers cannot import the function, or JSON cannot carry an argument.
        """
        return self._start(self._group.function(function), args, kwargs)

    def submit_after(
        self,
        after: Sequence[SyncTaskFuture[Any] | int],
        function: Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> SyncTaskFuture[Any]:
        """Run ``function(*args, **kwargs)`` when all tasks of ``after`` have succeeded.

        When one of them fails or is cancelled, the task is cancelled with the kind ``dependency_failed``.
        ``after`` has futures of this group, or numbers of tasks of any task group of the same user group.
        """
        return self._start(self._group.function(function), args, kwargs, calls_of(after))

    @overload
    def map(
        self,
        function: Callable[[A], Coroutine[Any, Any, R]],
        inputs: Iterable[A],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[R]: ...
    @overload
    def map(
        self,
        function: Callable[[A], R],
        inputs: Iterable[A],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[R]: ...
    @overload
    def map(
        self,
        function: Callable[[A], Coroutine[Any, Any, R]],
        inputs: Iterable[A],
        *,
        return_exceptions: bool,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[R | TaskFailed]: ...
    @overload
    def map(
        self,
        function: Callable[[A], R],
        inputs: Iterable[A],
        *,
        return_exceptions: bool,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[R | TaskFailed]: ...
    def map(
        self,
        function: Callable[..., Any],
        inputs: Iterable[Any],
        *,
        return_exceptions: bool = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[Any]:
        """Yield the results of a function for many inputs, as :meth:`.TaskGroup.map`."""
        check_mapping(inputs, buffer_size, (Iterable,))
        calls = ((item,) for item in inputs)
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
        inputs: Iterable[tuple[*As]],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[R]: ...
    @overload
    def starmap(
        self,
        function: Callable[[Unpack[As]], R],
        inputs: Iterable[tuple[*As]],
        *,
        return_exceptions: Literal[False] = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[R]: ...
    @overload
    def starmap(
        self,
        function: Callable[..., Any],
        inputs: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: bool = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[Any]: ...
    def starmap(
        self,
        function: Callable[..., Any],
        inputs: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: bool = False,
        ordered: bool = True,
        buffer_size: int = BUFFER_SIZE,
        **options: Unpack[TaskOptions],
    ) -> Iterator[Any]:
        """Map a function of several arguments, as in ``starmap(f, zip(xs, ys))``; see :meth:`map`."""
        check_mapping(inputs, buffer_size, (Iterable,))
        remote = self._group.function(function, **options)
        futures = in_order if ordered else as_completed
        taken = futures(
            lambda args: self._start(remote, arguments_of(args), {}), inputs, buffer_size
        )
        return results_of(taken, return_exceptions)

    def _start(
        self,
        remote: RemoteFunction,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        after: Sequence[Call | int] = (),
    ) -> SyncTaskFuture[Any]:
        return self._call(remote.task(args, kwargs), remote.result, after)

    # --- tasks of any kind

    def submit_task(
        self, task: Task, *, after: Sequence[SyncTaskFuture[Any] | int] = ()
    ) -> SyncTaskFuture[TaskInfo]:
        """Run a task; ``future.result()`` returns its outcome and raises for no failure of the task.

        ``after``: it starts when these have succeeded; see :meth:`submit_after`.
        """
        return self._call(encoded_task(task, "task"), lambda ended: ended, calls_of(after))

    def submit_tasks(
        self, tasks: Tasks, *, idempotency_key: str | None = None, require_worker: bool = False
    ) -> list[int]:
        """Submit any number of tasks, lazily; return their ids. They are read in the calling thread."""
        how = SubmitOptions(idempotency_key=idempotency_key, require_worker=require_worker)
        return submit_from_here(self._loop, self._group, None, tasks, how)

    def results(self, *, after: int = 0) -> Iterator[TaskInfo]:
        """Iterate over tasks as they end, each once, until no task of the group is unfinished."""
        return each_of(self._loop, self._group.results(after=after))

    def _call(
        self,
        task: msgspec.Raw,
        convert: Callable[[TaskInfo], Any],
        after: Sequence[Call | int] = (),
    ) -> SyncTaskFuture[Any]:
        future: SyncTaskFuture[Any] = SyncTaskFuture()

        def deliver(ended: TaskInfo | Exception) -> None:
            if future.begin_result():
                resolve_future(future, ended, convert)

        dispatcher, call = self._group.dispatcher, Call(task, deliver, after)
        future.withdraw = lambda: self._loop.soon(dispatcher.withdraw, call)
        future.call = call
        self._loop.soon(dispatcher.add, call)
        return future

    # --- ending

    def close(self, *, reason: str | None = None) -> TaskGroupInfo:
        """Close the group after the tasks that were submitted here."""
        return self._loop.run(self._group.close(reason=reason))

    def cancel(self, *, reason: str | None = None, grace: timedelta | None = None) -> TaskGroupInfo:
        """Cancel the group; running tasks are stopped with grace."""
        return self._loop.run(self._group.cancel(reason=reason, grace=grace))

    def __enter__(self) -> Self:
        self._loop.run(self._group.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._group.__aexit__(kind, error, trace))


def each_of(loop: LoopThread, items: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an async iterator that lives in ``loop``."""

    async def following() -> tuple[T] | None:
        try:
            return (await anext(items),)
        except StopAsyncIteration:
            return None

    while (found := loop.run(following())) is not None:
        yield found[0]


class SubmitOptions(TypedDict):
    """Options of :meth:`Client.submit <mitosis.client.client.Client.submit>`."""

    idempotency_key: str | None
    require_worker: bool


def submit_from_here(
    loop: LoopThread,
    to: GroupCalls | TaskGroup,
    group: Group | None,
    tasks: Tasks,
    how: SubmitOptions,
) -> list[int]:
    """Submit tasks through the event loop, but read them in the calling thread."""

    async def use(items: Tasks) -> list[int]:
        if isinstance(to, TaskGroup):
            return await to.submit_tasks(items, **how)
        assert group is not None  # noqa: S101 - a client needs the group
        return await to.submit(group, items, **how)

    check_tasks(tasks)
    if isinstance(tasks, Iterable):
        ids: list[int] = loop.run_fed(tasks, use)
        return ids
    return loop.run(use(tasks))


# --- the futures of a map, one input after the other


def in_order(
    submit: Callable[[A], Future[R]], inputs: Iterable[A], buffer_size: int
) -> Iterator[Future[R]]:
    """Yield a future for each input, in order; finished ones are yielded before more inputs are read."""
    waiting: deque[Future[R]] = deque()
    for item in inputs:
        waiting.append(submit(item))
        while waiting and (len(waiting) >= buffer_size or waiting[0].done()):
            yield waiting.popleft()
    yield from waiting


def as_completed(
    submit: Callable[[A], Future[R]], inputs: Iterable[A], buffer_size: int
) -> Iterator[Future[R]]:
    """Yield the futures as they complete."""
    done: queue.SimpleQueue[Future[R]] = queue.SimpleQueue()
    running = 0
    for item in inputs:
        submit(item).add_done_callback(done.put)
        running += 1
        while running >= buffer_size or not done.empty():
            yield done.get()
            running -= 1
    for _ in range(running):
        yield done.get()


def results_of(futures: Iterable[Future[R]], return_exceptions: bool) -> Iterator[R | TaskFailed]:
    """Yield the results of the tasks.

    Raises:
        TaskFailed: a task failed, unless failures are returned as results.
    """
    for future in futures:
        try:
            result: R | TaskFailed = future.result()
        except TaskFailed as failed:
            if not return_exceptions:
                raise
            result = failed
        yield result
