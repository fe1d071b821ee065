"""The outbox: pokes from PostgreSQL to Temporal (protocol P6), sent by the relay."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from mitosis.contracts.control import POKE_KINDS, Expected, Poke
from mitosis.contracts.temporal_names import OUTBOX_CHANNEL
from mitosis.store.pg.database import BY_INDEX, Connection, Database, as_unavailable
from mitosis.store.pg.statements import load

SQL = load("pg/outbox.sql")


class OutboxListener:
    """One direct connection that LISTENs to the outbox's channel."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def wait(self, seconds: float) -> bool:
        """Return True when notified within ``seconds``; several notifications may count as one.

        Raises:
            DatabaseUnavailable: the connection is gone; open another listener.
        """
        with as_unavailable():
            notified = False
            async for _ in self._connection.notifies(timeout=seconds, stop_after=1):
                notified = True
            return notified


async def take_pokes(database: Database, limit: int) -> Sequence[Poke]:
    """Take up to ``limit`` due pokes, oldest first, and hide them from other relays for a while.

    Rows of other kinds than ``POKE_KINDS`` stay for processes of a later version.
    Attempt n hides a poke for ``min(60, 2 ** n)`` seconds: a relay that dies or cannot send
    needs no second call. Several pokes for one subject may come together.
    """
    async with database.connection() as connection:
        given = {"limit": limit, "kinds": list(POKE_KINDS)}
        rows = await (await connection.execute(SQL["take"], given)).fetchall()
    return [Poke(**row) for row in rows]


async def delete_pokes(database: Database, ids: Sequence[int]) -> None:
    """Delete pokes that have been sent."""
    if ids:
        async with database.connection() as connection:
            await connection.execute(SQL["delete"], {"ids": list(ids)})


@asynccontextmanager
async def listen_for_pokes(database: Database) -> AsyncIterator[OutboxListener]:
    """LISTEN to the outbox. Listen first, then take, then wait, so that no poke is missed."""
    async with database.listen(OUTBOX_CHANNEL) as connection:
        yield OutboxListener(connection)


async def expected(
    database: Database, *, api_stale_after: float, host_lost_after: float
) -> Expected:
    """Return every subject whose workflow must be running now.

    ``api_stale_after``: no host is overdue while the last heartbeat of an API is older than these seconds.
    ``host_lost_after``: the silence in seconds after which a host without a lease is overdue.
    """
    parameters = {"api_stale_after": api_stale_after, "host_lost_after": host_lost_after}
    async with database.transaction() as connection:
        await connection.execute(BY_INDEX)
        row = await (await connection.execute(SQL["expected"], parameters)).fetchone()
    return Expected.model_validate(row)


async def poke(
    connection: Connection,
    *,
    groups: Sequence[UUID] = (),
    managers: Sequence[UUID] = (),
    scheduler: bool = False,
    schedules: Sequence[UUID] = (),
) -> None:
    """Write pokes in the caller's transaction: one statement, or none without pokes."""
    if groups or managers or scheduler or schedules:
        given = {
            "groups": list(groups),
            "managers": list(managers),
            "scheduler": scheduler,
            "schedules": list(schedules),
        }
        await connection.execute(SQL["poke"], given)
