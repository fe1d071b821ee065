"""Waking those who wait, without polling (protocol P7).

One connection of the process LISTENs; waiters stand in memory, by group number, and hold no
connection. What can be told of a group is a :class:`Topic`: *work* (something became claimable),
*changed* (counters or state moved), and two for live output. Payload on ``names.WAKE_CHANNEL``: the
number with the topic's suffix, ``<number>`` for work, ``<number>!`` for changed. A spurious or
doubled wake is harmless, since whoever is woken looks again; when the connection was lost everybody
is woken once, since something may have been missed.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
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
    """What a waiter waits for."""

    WORK = ""
    CHANGED = "!"
    FOLLOWED = "~"
    """Who follows the output of its tasks."""
    OUTPUT = "#"
    """Output of its tasks for those who follow."""


_SUFFIXES = {topic.value for topic in Topic}

Key = tuple[int, Topic]


class Waiter:
    """One who waits for one topic of one group. Register it *before* looking, then wait."""

    def __init__(self) -> None:
        self._told = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        """True when woken since the last call (or since it was made), False after ``seconds``."""
        if not await wait_event(self._told, max(seconds, 0.0)):
            return False
        self._told.clear()
        return True

    def tell(self) -> None:
        """Wake it, now or at its next wait."""
        self._told.set()


class Wake:
    """The waiters of this process."""

    def __init__(self) -> None:
        self._waiters: defaultdict[Key, set[Waiter]] = defaultdict(set)

    @classmethod
    @asynccontextmanager
    async def listen(cls, database: Database) -> AsyncIterator[Self]:
        """Listening while the context is open; reconnects by itself.

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
        """How many there are; one that waits for two topics counts twice."""
        return sum(len(waiters) for waiters in self._waiters.values())

    @contextmanager
    def waiter(self, group_number: int, *topics: Topic) -> Iterator[Waiter]:
        """A waiter that is registered for these topics; it is forgotten at the end."""
        waiter, keys = Waiter(), [(group_number, topic) for topic in topics]
        for key in keys:
            self._waiters[key].add(waiter)
        try:
            yield waiter
        finally:
            for key in keys:
                self._waiters[key].discard(waiter)
                if not self._waiters[key]:
                    del self._waiters[key]

    def tell(self, group_number: int, topic: Topic) -> None:
        """Wake everybody who waits for this."""
        for waiter in self._waiters.get((group_number, topic), ()):
            waiter.tell()

    def tell_all(self) -> None:
        """Wake everybody: something may have been missed."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.tell()

    async def _run(self, database: Database) -> None:
        while True:
            try:
                async with database.listen(WAKE_CHANNEL) as connection:
                    self.tell_all()
                    await self._hear(connection)
            except DatabaseUnavailable:
                log.warning("wake.disconnected")
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _hear(self, connection: Connection) -> None:
        with as_unavailable():
            async for notify in connection.notifies():
                raise_if_cancelled()
                number = notify.payload.rstrip("!~#")
                suffix = notify.payload.removeprefix(number)
                if number.isdigit() and suffix in _SUFFIXES:
                    self.tell(int(number), Topic(suffix))


async def tell_watchers(connection: Connection, group_number: int) -> None:
    """Wake who watches this group when the caller's transaction commits: no counter moved, something else."""
    await connection.execute(SQL["tell_watchers"], {"group_number": group_number})
