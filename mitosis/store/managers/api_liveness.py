"""The pulse of the API: whether hosts could be heard at all (protocol P4).

A host is lost when it has been silent for ``host_lost_after``. While no API runs, or PostgreSQL is
away, all are silent; so whoever serves hosts writes a beat every few seconds. Nobody is declared lost
while the beat is old, and the first beat after that starts the clocks of silence anew.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from mitosis.concurrency import cancel_and_wait, raise_if_cancelled
from mitosis.contracts.errors import MitosisError
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.statements import load

SQL = load("managers/api_liveness.sql")
BEAT_SECONDS = 3.0
API_STALE_SECONDS = 10.0
"""Older than this a beat says that nobody listens: as long as a silent host is only suspect."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def recording_api_heartbeat(
    database: Database, host_lost_after: timedelta
) -> AsyncIterator[None]:
    """Beat while the context is open; the first beat is written when it is entered.

    Raises:
        DatabaseUnavailable: the first beat cannot be written.
    """
    await beat(database, host_lost_after)
    task = asyncio.create_task(_beat_for_ever(database, host_lost_after), name="pulse")
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def beat(database: Database, host_lost_after: timedelta) -> bool:
    """Write one beat. True: it is the first after an outage, so the clocks of silence have begun anew."""
    async with database.transaction() as connection:
        last = await (await connection.execute(SQL["lock"])).fetchone()
        after_outage = last is not None and last["deaf_seconds"] > API_STALE_SECONDS
        if last is not None and after_outage:
            facts = {
                "beat_at": last["beat_at"],
                "host_lost_after": host_lost_after.total_seconds(),
            }
            await connection.execute(SQL["restart_leases"], facts)
            await connection.execute(SQL["restart_managers"], facts)
            log.info("pulse.clocks_restarted", extra={"deaf_seconds": last["deaf_seconds"]})
        await connection.execute(SQL["beat"])
    return after_outage


async def no_api_alive(connection: Connection) -> bool:
    """Whether silence of hosts means nothing now."""
    row = await (
        await connection.execute(SQL["deaf"], {"deaf_after": API_STALE_SECONDS})
    ).fetchone()
    return row is not None and bool(row["deaf"])


async def _beat_for_ever(database: Database, host_lost_after: timedelta) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        raise_if_cancelled()
        try:
            await beat(database, host_lost_after)
        except MitosisError as error:
            log.warning("pulse.missed", extra={"reason": error.message})
