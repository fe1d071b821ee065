"""The heartbeat of the API: whether the silence of hosts means anything (protocol P4).

A host is lost when it has been silent for ``host_lost_after``. While no API runs, or PostgreSQL is
away, every host is silent. So each API process records a heartbeat in PostgreSQL every few seconds. No
host is declared lost while the last heartbeat is old, and the first heartbeat after an outage restarts
the clocks of all hosts that were alive when it began.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from mitosis.concurrency import cancel_and_wait, raise_if_cancelled
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.liveness import API_STALE_SECONDS
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("managers/api_liveness.sql")
HEARTBEAT_SECONDS = 3.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Heartbeat:
    beat_at: datetime
    age_seconds: float


@dataclass(frozen=True, slots=True)
class _Stale:
    stale: bool


@asynccontextmanager
async def recording_api_heartbeat(store: Store) -> AsyncIterator[None]:
    """Record heartbeats while the context is open; the first one when it is entered.

    Raises:
        DatabaseUnavailable: the first heartbeat cannot be written.
    """
    await record_api_heartbeat(store)
    task = asyncio.create_task(_record_for_ever(store), name="api heartbeat")
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def record_api_heartbeat(store: Store) -> bool:
    """Record one heartbeat. Return whether it is the first after an outage, which restarts the clocks."""
    async with store.database.transaction() as connection:
        last = await fetch_one(connection, _Heartbeat, SQL["lock"], {})
        after_outage = last is not None and last.age_seconds > API_STALE_SECONDS
        if last is not None and after_outage:
            facts = {
                "beat_at": last.beat_at,
                "host_lost_after": store.host_lost_after.total_seconds(),
            }
            await connection.execute(SQL["restart_leases"], facts)
            await connection.execute(SQL["restart_managers"], facts)
            log.info("api_heartbeat.clocks_restarted", extra={"outage_seconds": last.age_seconds})
        await connection.execute(SQL["beat"])
    return after_outage


async def no_api_alive(connection: Connection) -> bool:
    """Return whether the silence of hosts means nothing now."""
    row = await fetch_one(connection, _Stale, SQL["stale"], {"stale_after": API_STALE_SECONDS})
    return row is not None and row.stale


async def _record_for_ever(store: Store) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        raise_if_cancelled()
        try:
            await record_api_heartbeat(store)
        except MitosisError as error:
            log.warning("api_heartbeat.missed", extra={"reason": error.message})
