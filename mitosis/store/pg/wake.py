"""Waking long polls without polling (protocol P7).

One connection of the process LISTENs. Waiters are in memory, by group number, and hold no connection.
A :class:`Topic` says what happened in a group: *work* (a task became claimable), *changed* (counters or
state moved), and two for live output. The payload on ``temporal_names.WAKE_CHANNEL`` is the number with
the topic's suffix: ``<number>`` for work, ``<number>!`` for changed. A spurious or doubled wake-up is
harmless, since a woken poll looks again. After a lost connection every waiter is woken once, since a
notification may have been missed.

``<number>>`` says that tasks have ended on which tasks of this group depend, ``<step>$`` that tasks of this
step of a run have: see :class:`Ended`. The number of ``<run>%`` is that of a run, which has changed.

Claims of worker services wait for named tasks instead, in any group: ``<named task>@<count>`` says that so
many became claimable. Only so many of its waiters are woken: thousands of services may wait for one task.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from heapq import nlargest
from typing import Self

from mitosis.concurrency import cancel_and_wait, raise_if_cancelled, wait_event
from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.contracts.temporal_names import WAKE_CHANNEL
from mitosis.store.pg.database import Connection, Database, as_unavailable
from mitosis.store.pg.statements import load

SQL = load("pg/wake.sql")
log = logging.getLogger(__name__)

RECONNECT_SECONDS = 1.0


class Topic(Enum):
    """What happened in a group."""

    WORK = ""
    CHANGED = "!"
    FOLLOWED = "~"
    """The followers of its output changed."""
    OUTPUT = "#"
    """Agents wrote output of its tasks."""
    RUN = "%"
    """The run of this number has changed."""


_SUFFIXES = {topic.value for topic in Topic}

Key = tuple[int, Topic]


class Waiter:
    """One long poll that waits for topics of one group. Register it *before* looking, then wait."""

    def __init__(self, pace_seconds: float = 0.0) -> None:
        self._woken = asyncio.Event()
        self._pace_seconds = pace_seconds

    async def wait(self, seconds: float) -> bool:
        """Return True when woken since the last call (or since it was made), False after ``seconds``."""
        if not await wait_event(self._woken, max(seconds, 0.0)):
            return False
        if self._pace_seconds:
            await asyncio.sleep(min(self._pace_seconds, seconds))
        self._woken.clear()
        return True

    @property
    def is_woken(self) -> bool:
        """Return whether its next wait ends at once."""
        return self._woken.is_set()

    def wake(self) -> None:
        """Wake it, now or at its next wait."""
        self._woken.set()


class Ended:
    """Numbers of groups with tasks that depend on ended ones, or of steps with ended tasks, until taken."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._all = True
        self._some = asyncio.Event()
        self._some.set()

    def add(self, number: int) -> None:
        """Add one."""
        self._numbers.add(number)
        self._some.set()

    def add_all(self) -> None:
        """Add all: a notification may have been missed."""
        self._all = True
        self._some.set()

    async def take(self, seconds: float | None = None) -> set[int] | None:
        """Wait until there are some, for up to ``seconds``, and remove them. None: all."""
        if seconds is None:
            await self._some.wait()
        else:
            await wait_event(self._some, seconds)
        taken = None if self._all else self._numbers
        self._numbers, self._all = set(), False
        self._some.clear()
        return taken


class Wake:
    """The waiters of this process."""

    def __init__(self) -> None:
        self.ended_parents = Ended()
        self.ended_steps = Ended()
        self._waiters: defaultdict[Key, set[Waiter]] = defaultdict(set)
        self._task_waiters: defaultdict[int, dict[Waiter, int]] = defaultdict(dict)
        """By named task, with the priority of the service, in the order of their arrival."""

    @classmethod
    @asynccontextmanager
    async def listen(cls, database: Database) -> AsyncIterator[Self]:
        """Listen while the context is open; reconnect after a lost connection.

        Raises:
            DatabaseUnavailable: the first connection cannot be made.
        """
        wake = cls()
        async with database.listen(WAKE_CHANNEL):
            pass  # fail here, not in the task
        task = asyncio.create_task(wake._run(database), name="wake")
        try:
            yield wake
        finally:
            await cancel_and_wait(task)

    @property
    def waiting(self) -> int:
        """The number of waiters; one that waits for two topics, or named tasks, counts twice."""
        of_groups = sum(len(waiters) for waiters in self._waiters.values())
        return of_groups + sum(len(waiters) for waiters in self._task_waiters.values())

    @contextmanager
    def waiter(
        self, group_number: int, *topics: Topic, pace_seconds: float = 0.0
    ) -> Iterator[Waiter]:
        """Register a waiter for these topics while the context is open.

        ``pace_seconds`` pass between a wake-up and the next look, however often the group changes.
        """
        waiter, keys = Waiter(pace_seconds), [(group_number, topic) for topic in topics]
        for key in keys:
            self._waiters[key].add(waiter)
        try:
            yield waiter
        finally:
            for key in keys:
                self._waiters[key].discard(waiter)
                if not self._waiters[key]:
                    del self._waiters[key]

    @contextmanager
    def task_waiter(self, priorities: Mapping[int, int]) -> Iterator[Waiter]:
        """Register a waiter for named tasks, each with the priority of its service, while it is open."""
        waiter = Waiter()
        for named_task, priority in priorities.items():
            self._task_waiters[named_task][waiter] = priority
        try:
            yield waiter
        finally:
            for named_task in priorities:
                del self._task_waiters[named_task][waiter]
                if not self._task_waiters[named_task]:
                    del self._task_waiters[named_task]

    def wake_for_tasks(self, named_task: int, count: int) -> None:
        """Wake as many waiters for a named task: the highest priorities first, then who waits longest."""
        waiting = self._task_waiters.get(named_task, {})
        asleep = [waiter for waiter in waiting if not waiter.is_woken]
        for waiter in nlargest(count, asleep, key=waiting.__getitem__):
            waiter.wake()

    def wake(self, group_number: int, topic: Topic) -> None:
        """Wake every waiter for this topic of this group."""
        for waiter in self._waiters.get((group_number, topic), ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake every waiter: a notification may have been missed."""
        self.ended_parents.add_all()
        self.ended_steps.add_all()
        for waiters in [*self._waiters.values(), *self._task_waiters.values()]:
            for waiter in waiters:
                waiter.wake()

    async def _run(self, database: Database) -> None:
        while True:
            try:
                async with database.listen(WAKE_CHANNEL) as connection:
                    self.wake_all()
                    await self._receive(connection)
            except DatabaseUnavailable:
                log.warning("wake.disconnected")
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _receive(self, connection: Connection) -> None:
        with as_unavailable():
            async for notify in connection.notifies():
                raise_if_cancelled()
                named_task, _, count = notify.payload.partition("@")
                if count.isdigit() and named_task.isdigit():
                    self.wake_for_tasks(int(named_task), int(count))
                    continue
                group, ended, _ = notify.payload.partition(">")
                if ended and group.isdigit():
                    self.ended_parents.add(int(group))
                    continue
                if notify.payload.endswith("$") and notify.payload[:-1].isdigit():
                    self.ended_steps.add(int(notify.payload[:-1]))
                    continue
                number = notify.payload.rstrip("!~#%")
                suffix = notify.payload.removeprefix(number)
                if number.isdigit() and suffix in _SUFFIXES:
                    self.wake(int(number), Topic(suffix))


async def notify_watchers(connection: Connection, group_number: int) -> None:
    """Wake the waiters for changes of this group when the caller's transaction commits.

    For changes that move no counter.
    """
    await connection.execute(SQL["notify_watchers"], {"group_number": group_number})
