"""Fair shares of the connections of a pool: one caller cannot keep all others from the database.

A pool serves in the order of arrival, so 1,500 requests of one user would hold up everyone for seconds, and
with them the renewals of leases.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from psycopg_pool import PoolTimeout

CALLER: ContextVar[Hashable | None] = ContextVar("mitosis_database_caller", default=None)
"""For whom the present task works; None: for the process itself, which has no limit."""
_HAS_TURN: ContextVar[bool] = ContextVar("mitosis_database_turn", default=False)


@dataclass(slots=True)
class _Queue:
    free: asyncio.Semaphore
    users: int = 0
    """Calls that have a turn or wait for one."""


class Turns:
    """Gives each caller at most ``most`` connections at once; its further calls wait behind its own."""

    def __init__(self, most: int, seconds: float) -> None:
        """``seconds``: how long a call waits for its turn."""
        self._most = most
        self._seconds = seconds
        self._queues: dict[Hashable, _Queue] = {}

    @property
    def callers(self) -> int:
        """How many callers have a connection or wait for one."""
        return len(self._queues)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn of the present caller, and hold it inside.

        A task that has one gets no second one: it would wait for itself.

        Raises:
            PoolTimeout: the calls of the same caller took all of the time.
        """
        caller = CALLER.get()
        if caller is None or _HAS_TURN.get():
            yield
            return
        queue = self._queues.setdefault(caller, _Queue(asyncio.Semaphore(self._most)))
        queue.users += 1
        try:
            await self._acquire(queue.free)
            _HAS_TURN.set(True)
            try:
                yield
            finally:
                _HAS_TURN.set(False)
                queue.free.release()
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[caller]

    async def _acquire(self, free: asyncio.Semaphore) -> None:
        if not free.locked():
            await free.acquire()
            return
        try:
            async with asyncio.timeout(self._seconds):
                await free.acquire()
        except TimeoutError as error:
            raise PoolTimeout("the caller has its share of the connections") from error
