"""Gathers single calls into submissions and delivers their results.

Owns two coroutines that run only while there is something to do: one submits queued calls, one follows the
results of the task group. Belongs to one event loop. It handles tasks as JSON and callbacks, not as
functions and futures.
"""

import asyncio
import re
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from mitosis.client.background import background
from mitosis.client.outcome import TaskNotRun
from mitosis.client.submitting import PART_BYTES, Part
from mitosis.client.withdrawal import Cancel, Withdrawals
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.checking import shown
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import ResultsPage, TaskInfo
from mitosis.contracts.task import MAX_TASKS_PER_SUBMIT, Dependency
from mitosis.contracts.wire import SubmitAnswer

Deliver = Callable[[TaskInfo | Exception], None]
Send = Callable[[Part], Awaitable[SubmitAnswer]]
Page = Callable[[int], Awaitable[ResultsPage]]
"""Returns results after this number; waits until there are some."""

_ITEM = re.compile(r"^tasks\[(\d+)\]")


@dataclass(slots=True, eq=False)
class Call:
    """One task; ``deliver`` is called once, with its end or the reason why its end is unknown."""

    task: msgspec.Raw
    """JSON of a :class:`~mitosis.contracts.task.SubmittedTask`."""
    deliver: Deliver
    after: Sequence["Call | int"] = ()
    """What it depends on: calls, or numbers of tasks."""
    task_id: int | None = None
    """None until it is submitted."""
    withdrawn: bool = False
    """The program has cancelled it: nothing is delivered."""


class Dispatcher:
    """The calls in progress of one task group."""

    def __init__(self, send: Send, page: Page, cancel: Cancel, after: int = 0) -> None:
        """Start nothing before the first call.

        Args:
            send: submits tasks.
            page: reads results.
            cancel: cancels tasks, by number.
            after: number of the last result that no call of this dispatcher waits for.
        """
        self._send, self._page, self._after = send, page, after
        self.withdrawals = Withdrawals(cancel)
        self._queued: deque[Call] = deque()
        self._waiting: dict[int, list[Call]] = {}
        self._early: dict[int, TaskInfo] = {}
        """Results that came before the answer to their submission."""
        self._sending = False
        self._sender: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None

    def add(self, call: Call) -> None:
        """Queue a call; calls queued in the same turn of the event loop go in one submission."""
        self._queued.append(call)
        if self._sender is None or self._sender.done():
            self._sending = True
            self._sender = background(self._sending_all())
        self._keep_following()

    def withdraw(self, call: Call) -> None:
        """Cancel the task of a call, or do not submit it; other calls may wait for the same task."""
        call.withdrawn = True
        if call.task_id is not None and (calls := self._waiting.get(call.task_id)) is not None:
            calls.remove(call)
            if not calls:
                del self._waiting[call.task_id]
                self.withdrawals.add(call.task_id)

    async def submitted(self) -> None:
        """Wait until every call queued so far is submitted or has failed."""
        if self._sender is not None:
            await asyncio.wait([self._sender])

    async def delivered(self) -> None:
        """Wait until every call is delivered."""
        await self.submitted()
        if self._waiting and self._follower is not None:
            await asyncio.wait([self._follower])

    async def aclose(self) -> None:
        """Stop, and fail the waiting calls. Their tasks, if submitted, continue."""
        running = (self._sender, self._follower)
        await cancel_and_wait(*(task for task in running if task is not None))
        await self.withdrawals.aclose()
        self._fail_all(TaskNotRun("the with block of the task group ended before this task"))

    # --- submitting

    async def _sending_all(self) -> None:
        try:
            await asyncio.sleep(0)
            while self._queued:
                await self._send_batch(self._take())
        finally:
            self._sending = False
            self._early.clear()

    def _take(self) -> list[Call]:
        taken: list[Call] = []
        size = 0
        while self._queued and len(taken) < MAX_TASKS_PER_SUBMIT and size < PART_BYTES:
            call = self._queued.popleft()
            if not call.withdrawn:
                taken.append(call)
                size += len(memoryview(call.task))
        return taken

    async def _send_batch(self, calls: list[Call]) -> None:
        """Submit calls; one that is refused does not fail the others."""
        calls, tasks = _sendable(calls)
        while calls:
            part = Part(tasks=tasks, idempotency_key=uuid.uuid4().hex, number=0)
            try:
                answer = await self._send(part)
            except InvalidRequest as error:
                calls, tasks = _sendable(_without_refused(calls, error))
            except Exception as error:  # noqa: BLE001 - the calls wait for an answer
                _fail(calls, error)
                return
            else:
                self._remember(calls, answer.task_ids)
                return

    def _remember(self, calls: list[Call], task_ids: list[int]) -> None:
        for call, task_id in zip(calls, task_ids, strict=True):
            call.task_id = task_id
            if (early := self._early.get(task_id)) is not None:
                call.deliver(early)
            else:
                self._waiting.setdefault(task_id, []).append(call)
        for call in calls:
            if call.withdrawn:
                self.withdraw(call)
        self._keep_following()

    # --- following

    def _keep_following(self) -> None:
        if self._follower is None or self._follower.done():
            self._follower = background(self._following())

    async def _following(self) -> None:
        try:
            while self._waiting or self._sending:
                page = await self._page(self._after)
                self._after = page.after
                for task in page.items:
                    self._ended(task)
                if page.finished:
                    await self.submitted()
                    self._fail_all(TaskNotRun("the task group has ended without this task"))
        except Exception as error:  # noqa: BLE001 - the calls wait for an answer
            self._fail_all(error)

    def _ended(self, task: TaskInfo) -> None:
        if (calls := self._waiting.pop(task.task_id, None)) is not None:
            for call in calls:
                call.deliver(task)
        elif self._sending:
            self._early[task.task_id] = task

    def _fail_all(self, error: Exception) -> None:
        waiting = [call for calls in self._waiting.values() for call in calls]
        self._waiting.clear()
        _fail(waiting, error)
        _fail(self._queued, error)
        self._queued.clear()


def _without_refused(calls: list[Call], error: InvalidRequest) -> list[Call]:
    item = _ITEM.match(str(error.facts.get("field", "")))
    if item is None or int(item[1]) >= len(calls):
        _fail(calls, error)
        return []
    index = int(item[1])
    error.facts["field"] = str(error.facts["field"])[item.end() :].lstrip(".")
    calls[index].deliver(error)
    return calls[:index] + calls[index + 1 :]


def calls_of(after: Sequence[object]) -> list[Call | int]:
    """Return what a task depends on, which is given as futures or numbers of tasks.

    Raises:
        InvalidRequest: an element is neither.
    """
    calls: list[Call | int] = []
    for at, one in enumerate(after):
        is_number = isinstance(one, int) and not isinstance(one, bool)
        call = one if is_number else getattr(one, "call", None)
        if not isinstance(call, int | Call):
            raise InvalidRequest(
                f"must be a future of a task or the number of one, not {shown(one)}",
                field=f"after[{at}]",
            )
        calls.append(call)
    return calls


def _sendable(calls: Iterable[Call]) -> tuple[list[Call], list[msgspec.Raw]]:
    """Return the calls and their tasks; fail those that depend on a call that is not submitted."""
    places: dict[Call, int] = {}
    tasks: list[msgspec.Raw] = []
    for call in calls:
        try:
            task = _dependent(call, places)
        except InvalidRequest as error:
            call.deliver(error)
        else:
            places[call] = len(tasks)
            tasks.append(task)
    return list(places), tasks


def _dependent(call: Call, places: Mapping[Call, int]) -> msgspec.Raw:
    """Return the task of a call with what it depends on; ``places``: the calls of the same part before it."""
    if not call.after:
        return call.task
    depends_on: list[Dependency] = []
    for parent in call.after:
        if isinstance(parent, int):
            depends_on.append(parent)
        elif parent.task_id is not None:
            depends_on.append(parent.task_id)
        elif parent in places:
            depends_on.append([0, places[parent]])
        else:
            raise InvalidRequest("a task on which it depends was not submitted", field="after")
    fields = msgspec.json.decode(call.task)
    fields["depends_on"] = [*fields.get("depends_on", ()), *depends_on]
    return msgspec.Raw(msgspec.json.encode(fields))


def _fail(calls: Iterable[Call], error: Exception) -> None:
    for call in calls:
        call.deliver(error)
