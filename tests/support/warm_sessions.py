"""Sessions of PostgreSQL that short tests use one after the other, as behind a pooler in session mode.

A new session reads the catalogue and plans every statement for the first time, which is most of the CPU time
of a short test. What a session keeps besides (settings, locks) is given up between two tests.

A conftest whose tests start no process imports the fixture :func:`database`, which takes the place of the one
for all tests.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, Self, TypeVar, cast

import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool

from mitosis.store.pg import database as pg

ACT = TypeVar("ACT", bound=AsyncConnection[Any])
Key = tuple[str, str]
PLANNED_ONCE = " -c plan_cache_mode=force_generic_plan"
"""To plan a statement again costs more than to execute it on the few rows of a test.

Also a check of a foreign key keeps its first plan, which reads a table that was small then: a test with many
rows begins with new sessions (``new_sessions``), which plan as in the product.
"""
_idle: defaultdict[Key, list["WarmSession"]] = defaultdict(list)


class WarmSession(AsyncConnection[DictRow]):
    """A connection that begins with an idle session of the same address, if there is one."""

    _key: Key | None = None

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        cursors = kwargs.pop("cursor_factory", AsyncCursor)
        key = (conninfo, repr(sorted(kwargs.items(), key=lambda item: item[0])))
        while _idle[key]:
            kept = _idle[key].pop()
            kept.cursor_factory = cursors  # they observe for another test
            kept.lock = asyncio.Lock()  # it belongs to the event loop of another test
            kept._notifies_backlog = deque()  # what it was sent then
            if kept.pgconn.status == ConnStatus.OK:
                assert isinstance(kept, cls)
                return kept
        if "options" in kwargs:
            kwargs["options"] += PLANNED_ONCE
        new = await super().connect(conninfo, cursor_factory=cursors, **kwargs)
        if new.prepare_threshold is not None:
            new.prepare_threshold = 0  # a statement of the next test is one of an earlier test
        new._key = key
        return new

    async def close(self) -> None:
        idle = self.pgconn.status == ConnStatus.OK and (
            self.pgconn.transaction_status == TransactionStatus.IDLE
        )
        if self._key is None or not idle or self in _idle[self._key]:
            await super().close()
            return
        await self.execute("SELECT pg_advisory_unlock_all()")
        await self.execute("UNLISTEN *")
        await self.execute("RESET ALL")
        _idle[self._key].append(self)


class WarmPool(AsyncConnectionPool[ACT]):
    """The pool of the product, over warm sessions."""

    def __init__(self, conninfo: str, **kwargs: Any) -> None:
        super().__init__(conninfo, connection_class=cast(type[ACT], WarmSession), **kwargs)


def idle_pids() -> list[int]:
    """The backends of all idle sessions."""
    sessions = [session for kept in _idle.values() for session in kept]
    return [session.pgconn.backend_pid for session in sessions]


def end_all() -> None:
    """End the idle sessions."""
    for kept in _idle.values():
        for session in kept:
            session.pgconn.finish()
    _idle.clear()


@pytest.fixture
def database(
    request: pytest.FixtureRequest, databases: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The libpq URL of a migrated database without rows, of this test alone; its sessions are not new."""
    if request.node.get_closest_marker("new_sessions"):
        with databases.database() as url:
            yield url
        return
    monkeypatch.setattr(pg, "AsyncConnectionPool", WarmPool)
    monkeypatch.setattr(pg, "AsyncConnection", WarmSession)  # the one that listens
    with databases.warm_database() as url:
        yield url
