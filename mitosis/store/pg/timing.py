"""The time that each statement takes, for metrics."""

import re
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Any, Self, TypeAlias

from psycopg import AsyncCursor
from psycopg.pq import PipelineStatus

Observe: TypeAlias = Callable[[str, float], None]
"""Called with the name of a statement and its duration in seconds."""
OTHER = "other"
"""The name of statements that are composed, as those of lists with filters."""
_NAMED = re.compile(r"/\* ([\w/]+\.sql) (\w+) \*/")


@lru_cache(maxsize=4096)
def statement_name(text: str) -> str:
    """Return the name that :func:`mitosis.store.pg.statements.load` has put into a statement."""
    found = _NAMED.search(text)
    return f"{found[1]} {found[2]}" if found else OTHER


def timed_cursor(observe: Observe) -> type[AsyncCursor[Any]]:
    """Return a class of cursors that measure each statement, also one that fails.

    In a pipeline statements do not wait for their results, so they are not measured there.
    """

    class TimedCursor(AsyncCursor[Any]):
        async def execute(self, query: Any, *arguments: Any, **options: Any) -> Self:
            if self.connection.pgconn.pipeline_status != PipelineStatus.OFF:
                return await super().execute(query, *arguments, **options)
            began = perf_counter()
            try:
                return await super().execute(query, *arguments, **options)
            finally:
                name = statement_name(query) if isinstance(query, str) else OTHER
                observe(name, perf_counter() - began)

    return TimedCursor
