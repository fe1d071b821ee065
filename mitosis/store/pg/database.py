"""The connection pool to PostgreSQL: sessions limits, transactions, failures as our own errors.

It does not depend on our tables. A URL may end in ``?pgbouncer=1`` (beside other parameters): then nothing
is prepared and no session option is set, as a transaction pooler needs; the limits are then those of
the role. ``direct_url`` reaches the server without the pooler: LISTEN and migrations need that.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, LiteralString, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from mitosis.contracts.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidRequest,
    StorageFull,
)
from mitosis.store.pg.timing import Observe, timed_cursor
from mitosis.store.pg.turns import Turns
from mitosis.version import __version__

log = logging.getLogger(__name__)

Connection = AsyncConnection[DictRow]
Parameters = Sequence[Any] | Mapping[str, Any]

LIMITS = (
    "-c statement_timeout=15s -c lock_timeout=3s -c idle_in_transaction_session_timeout=10s"
    " -c jit=off -c timezone=UTC"
)
"""Limits on transactions: a long one would keep dead rows at the head of every queue."""
PLANNED_ONCE: LiteralString = "SET LOCAL plan_cache_mode = force_generic_plan"
WITHOUT_LOOPS: LiteralString = "SET LOCAL enable_nestloop = off"
"""Two sources of n rows are joined by n comparisons and not n², however few rows are expected."""
BY_INDEX: LiteralString = "SET LOCAL enable_seqscan = off"
"""The tables may be empty when a statement is planned."""
IN_INDEX_ORDER: LiteralString = "SET LOCAL enable_bitmapscan = off"
WITHOUT_SORTS: LiteralString = """
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_sort', 'off', true)
"""
AS_USUAL: LiteralString = """
SELECT set_config('enable_nestloop', 'on', true), set_config('enable_seqscan', 'on', true),
       set_config('plan_cache_mode', 'auto', true)
"""
"""Ends these settings within a transaction."""
ACQUIRE_SECONDS = 5.0
CONNECT_SECONDS = 5
RECONNECT_SECONDS = 1.0
"""How long the pool tries to reconnect.

Its pauses double, so after an outage of a minute it would wait another minute. After it gives up, the next
call makes a connection at once.
"""


class Database:
    """A pool of connections, open inside ``async with Database.open(url)``."""

    def __init__(
        self, pool: AsyncConnectionPool[Connection], direct_url: str, kwargs: dict[str, Any]
    ) -> None:
        """Use :meth:`open`."""
        self._pool = pool
        self._turns = Turns(max(1, pool.max_size // 2), ACQUIRE_SECONDS)
        self._direct_url = direct_url
        self._kwargs = kwargs

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        pool_size: int = 10,
        direct_url: str | None = None,
        observe: Observe | None = None,
    ) -> AsyncIterator[Self]:
        """Open the pool; connections are made when needed and made again when they break.

        Args:
            url: libpq URL, may carry ``pgbouncer=1``.
            pool_size: most connections this process holds (one more while something listens).
            direct_url: the server behind the pooler; by default ``url``.
            observe: called after each statement.

        Raises:
            ConfigurationError: not a URL of PostgreSQL.
            DatabaseUnavailable: no server answers there.
        """
        plain, pooled = split_url(url)
        kwargs: dict[str, Any] = {
            "autocommit": True,
            "row_factory": dict_row,
            "connect_timeout": CONNECT_SECONDS,
            "application_name": f"mitosis {__version__}",
        }
        if observe is not None:
            kwargs["cursor_factory"] = timed_cursor(observe)
        if pooled:
            kwargs["prepare_threshold"] = None
        else:
            kwargs["options"] = LIMITS
        pool = AsyncConnectionPool[Connection](
            plain,
            kwargs=kwargs,
            min_size=1,
            max_size=pool_size,
            timeout=ACQUIRE_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            open=False,
            name="mitosis",
        )
        try:
            with as_unavailable():
                await pool.open(wait=True, timeout=ACQUIRE_SECONDS + CONNECT_SECONDS)
            yield cls(pool, split_url(direct_url or url)[0], kwargs)
        finally:
            await pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection in autocommit mode: every statement is a transaction.

        Raises:
            DatabaseUnavailable: no turn of the caller (``turns``) within 5 s or no connection within
                another 5 s, or it broke, or a limit was reached.
        """
        with as_unavailable():
            async with self._turns.turn(), self._pool.connection() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection inside a transaction; committed at the end, rolled back by an exception.

        Raises:
            DatabaseUnavailable: as :meth:`connection`; also when a deadlock was resolved against us.
        """
        async with self.connection() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def in_index_order(self, *, sorts: bool = True) -> AsyncIterator[Connection]:
        """Yield a transaction for pages and chunks: ``ORDER BY`` an index, and a limit.

        ``sorts``: False if no part of the statement has more than a page to sort.

        Where the statistics of a table are older than most of its rows, PostgreSQL expects few rows, and
        would read all that match to sort them. Only an index that has them in order can stop at the limit.

        Raises:
            DatabaseUnavailable: as :meth:`transaction`.
        """
        async with self.transaction() as connection:
            await connection.execute(IN_INDEX_ORDER if sorts else WITHOUT_SORTS)
            yield connection

    @asynccontextmanager
    async def pipelined_transaction(self) -> AsyncIterator[Connection]:
        """Yield a transaction whose statements travel together: fetch from their cursors after the block.

        A statement that is executed with ``prepare=True`` is planned once per connection, without its
        parameters: those of the first calls say nothing about the next.

        Raises:
            DatabaseUnavailable: as :meth:`transaction`.
        """
        async with (
            self.connection() as connection,
            connection.pipeline(),
            connection.transaction(),
        ):
            await connection.execute(PLANNED_ONCE, prepare=True)
            yield connection

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Connection]:
        """Yield a connection of its own that listens to ``channel`` (a constant of ours).

        Raises:
            DatabaseUnavailable: it cannot be made.
        """
        kwargs = {**self._kwargs, "options": "-c timezone=UTC"}
        with as_unavailable():
            connection = await AsyncConnection.connect(self._direct_url, **kwargs)
            async with connection:
                await connection.execute(f"LISTEN {channel}")
                yield connection

    async def check(self) -> None:
        """Make one round trip, for readiness.

        Raises:
            DatabaseUnavailable: no answer.
        """
        async with self.connection() as connection:
            await connection.execute("SELECT 1")


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Turn lost connections, reached limits and resolved deadlocks into DatabaseUnavailable.

    Raises:
        DatabaseUnavailable: trying again can help.
        StorageFull: the disk of the database is full.
        InvalidRequest: a value that no column can hold, as text with a NUL byte.
    """
    try:
        yield
    except (PoolTimeout, PoolClosed) as error:
        raise DatabaseUnavailable("cannot get a connection to the database") from error
    except psycopg.errors.DiskFull as error:
        log.error("database.disk_full", extra={"reason": str(error)})  # noqa: TRY400
        raise StorageFull(
            f"PostgreSQL has no space left ({error.diag.message_primary}): free space on its disk;"
            " nothing was stored"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        log.warning(
            "database.unavailable", extra={"sqlstate": error.sqlstate, "reason": str(error)}
        )
        raise DatabaseUnavailable from error
    except psycopg.DataError as error:
        what = error.diag.message_primary or type(error).__name__  # its details may show values
        raise InvalidRequest(f"a value cannot be stored: {what}") from error


def split_url(url: str) -> tuple[str, bool]:
    """Return the URL without our own parameter, and whether a transaction pooler is in between."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigurationError("MITOSIS_DATABASE_URL must start with postgresql://")
    query = parse_qsl(parts.query, keep_blank_values=True)
    pooled = any(key == "pgbouncer" and value not in ("", "0") for key, value in query)
    kept = urlencode([(key, value) for key, value in query if key != "pgbouncer"])
    return urlunsplit(parts._replace(query=kept)), pooled
