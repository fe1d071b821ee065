"""Reads the inputs in a thread and submits them as they arrive, so tasks of an open pipe start at once.

The reader stops while it is far ahead of the API. Parts are numbered under one idempotency key, so a
part that is sent again creates no task twice.
"""

import asyncio
import threading
import time
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import msgspec

from mitosis.cli.run.sources import Source
from mitosis.cli.run.template import Item
from mitosis.client.client import Client

PART = 5_000
AHEAD = 20_000
GATHER_SECONDS = 0.02
"""How long to collect inputs for one submission after the first has arrived."""


FIRST_SECONDS = 0.1
"""How long to collect the inputs of a pipe that are checked before the group is created."""


def _now() -> float:
    """Return the seconds since boot: never adjusted, and counting while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class InputNumbers:
    """Maps task ids to numbers of inputs; task ids are shared with other groups.

    Task ids of one part are mostly consecutive, so a few ranges cover any number of tasks.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: list[tuple[int, int]] = []
        """First input and length of the range that starts at the task of the same index."""
        self._count = 0
        self._arrived = asyncio.Event()

    def add(self, task_ids: Sequence[int]) -> None:
        """Add the tasks of the next inputs, in order."""
        for task_id in task_ids:
            self._count += 1
            if self._firsts and task_id == self._firsts[-1] + self._ranges[-1][1]:
                first, length = self._ranges[-1]
                self._ranges[-1] = (first, length + 1)
            else:
                at = bisect(self._firsts, task_id)
                self._firsts.insert(at, task_id)
                self._ranges.insert(at, (self._count, 1))
        self._arrived.set()

    async def wait_for(self, task_id: int) -> int:
        """Return the number of the input of a task, once its submission has been answered."""
        while (number := self._find(task_id)) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return number

    def _find(self, task_id: int) -> int | None:
        at = bisect(self._firsts, task_id) - 1
        if at < 0:
            return None
        (number, length), offset = self._ranges[at], task_id - self._firsts[at]
        return number + offset if offset < length else None


class Feeder:
    """Reads and checks every input, and submits them to one group.

    Call :meth:`read_first` before the group is created, and :meth:`run` afterwards.
    """

    def __init__(self, client: Client, source: Source, make: Callable[[Item], msgspec.Raw]) -> None:
        self._client = client
        self._source = source
        self._make = make
        self._key = uuid4().hex
        self._parts = 0
        self._read: deque[msgspec.Raw] = deque()
        self._room = threading.Semaphore(AHEAD)
        self._arrived = asyncio.Event()
        self._end = False
        self._error: Exception | None = None
        self.numbers = InputNumbers()
        self.submitted = 0
        self.last_submitted = _now()
        """Time of the last submission, in seconds since boot."""

    async def read_first(self) -> None:
        """Wait for the first part: what a pipe brings at once, or the first inputs of a file or list.

        Raises:
            MitosisError: one of them is invalid.
        """
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._reader, args=[loop], daemon=True, name="inputs").start()
        await self._arrived.wait()
        if self._source.pauses:
            await asyncio.sleep(FIRST_SECONDS)
        while not (self._end or self._source.pauses or len(self._read) >= PART):
            self._arrived.clear()
            await self._arrived.wait()
        self._arrived.set()
        if self._error is not None and len(self._read) < PART:
            raise self._error

    async def run(self, group: UUID) -> None:
        """Submit until the source ends.

        Raises:
            MitosisError: an input is invalid, or the API refuses it; submitted tasks remain.
        """
        while True:
            await self._arrived.wait()
            if not self._end:
                await asyncio.sleep(GATHER_SECONDS)
            self._arrived.clear()
            while self._read:
                part = [self._read.popleft() for _ in range(min(PART, len(self._read)))]
                await self._submit(group, part)
            if self._end and not self._read:
                if self._error is not None:
                    raise self._error
                return

    async def _submit(self, group: UUID, tasks: list[msgspec.Raw]) -> None:
        self._parts += 1
        key = f"{self._key}-{self._parts}"
        self.numbers.add(await self._client.submit(group, tasks, idempotency_key=key))
        self.submitted += len(tasks)
        self.last_submitted = _now()
        self._room.release(len(tasks))

    def _reader(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            for item in self._source.items:
                task = self._make(item)
                self._room.acquire()
                self._read.append(task)
                loop.call_soon_threadsafe(self._arrived.set)
        except Exception as error:  # noqa: BLE001 - raised by run()
            self._error = error
        self._end = True
        try:
            loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            return  # detached: the loop is gone
