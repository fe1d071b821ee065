"""Splits any number of tasks into parts that the API accepts, and sends a few of them at a time.

A part is all or nothing; a submission of several parts is not. Its parts share one idempotency key, so
repeating the submission creates only the missing tasks. A part with tasks that depend on others is sent when
the parts before it have been submitted.
"""

import asyncio
import re
import time
from bisect import bisect_right
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mitosis.contracts.checking import encoded, shown
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task import (
    MAX_TASKS_PER_SUBMIT,
    SubmittedTask,
    TaskSubmission,
    check_submission,
    submission,
)
from mitosis.contracts.wire import SubmitAnswer

PART_BYTES = 16_000_000
"""A part is closed when its tasks reach this size; the API takes 64 MB."""
PARTS_IN_FLIGHT = 3
PROMPT_SECONDS = 0.1

Task = SubmittedTask | Mapping[str, Any] | msgspec.Raw
"""A task: typed, as a plain mapping, or as its checked and encoded JSON."""
Tasks = Iterable[Task] | AsyncIterable[Task]
Send = Callable[["Part"], Awaitable[SubmitAnswer]]

_ITEM = re.compile(r"^tasks\[(\d+)\]")
_DEPENDS = b'"depends_on"'


class Part(msgspec.Struct, kw_only=True, omit_defaults=True, rename={"number": "part"}):
    """One body of ``POST …/tasks``: an encoded :class:`~mitosis.contracts.wire.SubmitTasks`."""

    tasks: list[msgspec.Raw]
    idempotency_key: str
    number: int
    require_worker: bool = False


@dataclass(slots=True)
class _Open:
    """The part that is being filled."""

    tasks: list[msgspec.Raw]
    size: int = 0
    since: float = field(default_factory=time.monotonic)
    """The time when its first task was read."""

    def is_old(self) -> bool:
        """Return whether its tasks have waited long enough to be sent."""
        return time.monotonic() - self.since > PROMPT_SECONDS

    def add(self, task: msgspec.Raw) -> bool:
        """Add a task; return whether the part is full now."""
        self.tasks.append(task)
        self.size += len(memoryview(task))
        return len(self.tasks) == MAX_TASKS_PER_SUBMIT or self.size >= PART_BYTES


def encoded_task(task: Task, field: str) -> msgspec.Raw:
    """Return a task as it is sent; check it unless that has been done.

    Raises:
        InvalidRequest: names the field of the task, below ``field``, and what would be right.
    """
    if isinstance(task, msgspec.Raw):
        return task
    if isinstance(task, Mapping):
        task = submission(task, field)
    elif not isinstance(task, SubmittedTask):
        raise InvalidRequest(
            f"must be a TaskSubmission or a dict with its fields, not {shown(task)}", field=field
        )
    elif not isinstance(task, TaskSubmission):  # a TaskSubmission was checked when it was made
        check_submission(task, field)
    return msgspec.Raw(encoded(task, field))


async def parts_of(
    tasks: Tasks, key: str, *, prompt: bool = False, require_worker: bool = False
) -> AsyncIterator[Part]:
    """Split the tasks into parts numbered from 0, in order; read no further than needed.

    What a task depends on may be named as ``[0, index]``, with the index in the whole submission.

    ``prompt``: do not hold slow tasks back until a part is full. The parts then depend on timing, so a
        repeated submission under the same key may have different parts.
    ``require_worker``: see :class:`~mitosis.contracts.wire.SubmitTasks`.
    """

    def made(filled: _Open, number: int) -> Part:
        return Part(
            tasks=filled.tasks, idempotency_key=key, number=number, require_worker=require_worker
        )

    number, filling = 0, _Open([])
    at, starts = 0, [0]
    async for task in _each(tasks):
        full = filling.add(_placed(encoded_task(task, f"tasks[{at}]"), starts, f"tasks[{at}]"))
        at += 1
        if full or (prompt and filling.is_old()):
            yield made(filling, number)
            number, filling = number + 1, _Open([])
            starts.append(at)
    if filling.tasks:
        yield made(filling, number)


async def submit_parts(parts: AsyncIterator[Part], send: Send) -> list[int]:
    """Send every part, a few at a time; return the ids in the order of the tasks.

    Raises:
        MitosisError: the error of the first part that failed; parts in progress are abandoned.
    """
    answers: list[list[int]] = []
    sent: list[asyncio.Task[None]] = []
    free = asyncio.Semaphore(PARTS_IN_FLIGHT)

    async def send_one(part: Part, offset: int) -> None:
        try:
            answers[part.number] = (await send(part)).task_ids
        except InvalidRequest as error:
            raise _with_offset(error, offset) from None
        free.release()  # read late, so that nothing is read after an error

    try:
        async with asyncio.TaskGroup() as running:
            offset = 0
            async for part in parts:
                await free.acquire()
                answers.append([])
                if sent and any(_DEPENDS in memoryview(task).tobytes() for task in part.tasks):
                    await asyncio.wait(sent)
                sent.append(running.create_task(send_one(part, offset)))
                offset += len(part.tasks)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task_id for ids in answers for task_id in ids]


def _placed(task: msgspec.Raw, starts: list[int], field: str) -> msgspec.Raw:
    """Return the task with places in parts instead of those in the whole submission."""
    if _DEPENDS not in memoryview(task).tobytes():
        return task
    fields = msgspec.json.decode(task)
    depends_on = fields.get("depends_on", [])
    if not any(isinstance(one, list) for one in depends_on):
        return task
    fields["depends_on"] = [
        _place(one, starts, f"{field}.depends_on[{at}]") if isinstance(one, list) else one
        for at, one in enumerate(depends_on)
    ]
    return msgspec.Raw(msgspec.json.encode(fields))


def _place(place: list[int], starts: list[int], field: str) -> list[int]:
    zero, index = place
    if zero != 0:
        raise InvalidRequest(
            "must be [0, index], with the index of an earlier task of the submission", field=field
        )
    part = bisect_right(starts, index) - 1
    return [part, index - starts[part]]


async def _each(tasks: Tasks) -> AsyncIterator[Task]:
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield task
    else:
        for task in tasks:
            yield task


def _with_offset(error: InvalidRequest, offset: int) -> InvalidRequest:
    """Return the error with the index of the task in the whole submission instead of its part."""
    field = str(error.facts.get("field", ""))
    if (item := _ITEM.match(field)) and offset:
        error.facts["field"] = f"tasks[{int(item[1]) + offset}]{field[item.end() :]}"
    return error
