"""The events of followed output: chunks of the agents in order, then the rest of the tail in each result.

Keeps the position of each stream of each attempt, so bytes come once and a gap is marked. Reads when
woken (P7), one batch of rows after the other; nothing is queued for a slow reader.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any
from uuid import UUID

from mitosis.contracts.following import OutputEvent
from mitosis.contracts.http import TaskFailureInfo, TaskInfo
from mitosis.contracts.ids import parse_task_uuid
from mitosis.contracts.lifecycle import TASK
from mitosis.contracts.task_output import kept_bytes
from mitosis.store.output.following import ROWS_READ, Interest, Stream, following, read_chunks
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store
from mitosis.store.tasks.group import watch_group
from mitosis.store.tasks.results import read_results
from mitosis.store.tasks.views import read_task

PAGE = 100
PACE_SECONDS = 0.05
LOOK_SECONDS = 10.0
LAST_ROWS_SECONDS = 1.0
"""How long after its result the last output of an attempt may arrive."""
REMEMBERED = 10_000
"""Attempts whose position is kept."""

STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


class Positions:
    """The position up to which each stream of each attempt has been sent."""

    def __init__(self) -> None:
        self._at: OrderedDict[tuple[int, int, str], int] = OrderedDict()

    def of(self, task_id: int, attempt: int, stream: Stream) -> int | None:
        """Return the position; None if nothing was sent yet."""
        return self._at.get((task_id, attempt, stream))

    def advance(
        self, task_id: int, attempt: int, stream: Stream, offset: int, data: bytes
    ) -> OutputEvent | None:
        """Return the event for those bytes that were not sent yet; None if there are none."""
        key = (task_id, attempt, stream)
        known = self._at.get(key, 0)
        fresh = data[max(0, known - offset) :]
        if not fresh:
            return None
        start = max(known, offset)
        self._at[key] = start + len(fresh)
        self._at.move_to_end(key)
        if len(self._at) > REMEMBERED:
            self._at.popitem(last=False)
        return OutputEvent.model_construct(
            kind="output",
            task_id=task_id,
            attempt=attempt,
            stream=stream,
            offset=start,
            skipped=start - known or None,
            data=fresh,
        )


def rest_of(
    positions: Positions, task_id: int, attempt: int, detail: Mapping[str, object] | None
) -> Iterator[OutputEvent]:
    """Yield the part of an ended attempt's kept tail that was not sent yet."""
    for stream in STREAMS:
        offset, data = _tail(detail, stream)
        if event := positions.advance(task_id, attempt, stream, offset, data):
            yield event


def _tail(detail: Mapping[str, object] | None, stream: Stream) -> tuple[int, bytes]:
    """Return the offset of the kept tail of a stream, and its bytes."""
    data = kept_bytes(detail, stream)
    total = (detail or {}).get(f"{stream}_bytes")
    return max(0, total - len(data)) if isinstance(total, int) else 0, data


class OutputFollower:
    """One follower; its generators may be closed at any time."""

    def __init__(self, store: Store, interest: Interest) -> None:
        self._store = store
        self._interest = interest
        self._positions = Positions()
        self._row = 0

    async def new_rows(self) -> AsyncGenerator[OutputEvent]:
        """Yield everything that agents have written since the last call."""
        while True:
            rows = await read_chunks(self._store, self._interest, self._row)
            for row in rows:
                self._row = row.id
                event = self._positions.advance(
                    row.task_id, row.attempt, row.stream, row.position, row.data
                )
                if event is not None:
                    yield event
            if len(rows) < ROWS_READ:
                return

    async def last_rows(self, task: TaskInfo) -> AsyncGenerator[OutputEvent]:
        """Yield the last rows of an attempt that was followed, then the rest of its kept tail."""
        deadline = asyncio.get_running_loop().time() + LAST_ROWS_SECONDS
        with self._store.listening.waiter(self._interest.group_number, Topic.OUTPUT) as waiter:
            while True:
                async for event in self.new_rows():
                    yield event
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0 or not self._misses(task):
                    break
                await waiter.wait(left)
        for event in rest_of(self._positions, task.task_id, task.attempt, task.detail):
            yield event

    def _misses(self, task: TaskInfo) -> bool:
        """Return whether only a part of this attempt was sent."""
        known = [self._positions.of(task.task_id, task.attempt, stream) for stream in STREAMS]
        if not any(at is not None for at in known):
            return False
        totals = [(task.detail or {}).get(f"{stream}_bytes", 0) for stream in STREAMS]
        return any((at or 0) < _number(total) for at, total in zip(known, totals, strict=True))

    def of_failure(self, task: TaskInfo, failure: TaskFailureInfo) -> Iterator[OutputEvent]:
        """Yield the end of an attempt that was followed by another."""
        yield from rest_of(self._positions, task.task_id, failure.attempt, failure.detail)
        how = f"exit {failure.exit_code}" if failure.exit_code is not None else failure.kind
        yield OutputEvent(
            kind="attempt",
            task_id=task.task_id,
            attempt=failure.attempt,
            state="failed",
            reason=how,
        )


async def follow_task_output(store: Store, public_id: UUID) -> AsyncGenerator[OutputEvent]:
    """Yield the output of one task, attempt by attempt, until its result.

    Raises:
        NotFound: no such task.
        DatabaseUnavailable: follow again.
    """
    task = await read_task(store, public_id)
    group_number, task_id = parse_task_uuid(public_id)
    interest = Interest(group_number, task_id)
    follower, standing, failures = OutputFollower(store, interest), None, 0
    topics = (Topic.OUTPUT, Topic.CHANGED)
    with store.listening.waiter(group_number, *topics, pace_seconds=PACE_SECONDS) as waiter:
        async with following(store, interest):
            while True:
                await watch_group(store.database, group_number)
                task = await read_task(store, public_id)
                async for event in follower.new_rows():
                    yield event
                for failure in task.failures[failures:]:
                    for event in follower.of_failure(task, failure):
                        yield event
                failures = len(task.failures)
                if task.state in TASK.terminal:
                    break
                if standing != (standing := (task.attempt, task.state)):
                    yield _attempt(task)
                await waiter.wait(LOOK_SECONDS)
            async for event in follower.last_rows(task):
                yield event
    yield OutputEvent(kind="result", task_id=task.task_id, attempt=task.attempt, result=task)
    yield OutputEvent(kind="end")


async def follow_group_output(
    store: Store, task_group_id: UUID, *, after: int = 0
) -> AsyncGenerator[OutputEvent]:
    """Yield the output of the running tasks of a group, and each result after number ``after`` once.

    Raises:
        NotFound: no such group.
        DatabaseUnavailable: follow again behind the last cursor.
    """
    number, _ = await read_results(store.database, task_group_id, after, 1)
    interest = Interest(number, None)
    follower = OutputFollower(store, interest)
    with store.listening.waiter(
        number, Topic.OUTPUT, Topic.CHANGED, pace_seconds=PACE_SECONDS
    ) as waiter:
        async with following(store, interest):
            while True:
                await watch_group(store.database, number)
                _, page = await read_results(store.database, task_group_id, after, PAGE)
                async for event in follower.new_rows():
                    yield event.model_copy(update={"cursor": after})
                for task in page.items:
                    async for event in follower.last_rows(task):
                        yield event.model_copy(update={"cursor": after})
                    after = task.seq or after
                    yield _result(task, after)
                if page.finished:
                    yield OutputEvent(kind="end", cursor=after)
                    return
                if len(page.items) < PAGE:
                    await waiter.wait(LOOK_SECONDS)


def _attempt(task: TaskInfo) -> OutputEvent:
    return OutputEvent(
        kind="attempt",
        task_id=task.task_id,
        attempt=task.attempt,
        state=task.state,
        manager_name=task.manager_name,
    )


def _result(task: TaskInfo, cursor: int) -> OutputEvent:
    return OutputEvent(
        kind="result", cursor=cursor, task_id=task.task_id, attempt=task.attempt, result=task
    )


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
