"""Progress of leases (protocol P7): what they do about ready tasks, and the end of those that are stuck."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.store.leases.ending import end_lease, lock_lease
from mitosis.store.leases.failures import record_failure
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/capacity.sql")
PROGRESS, STUCK = SQL["progress"], SQL["stuck"]
STUCK_LEASES = "SELECT l.epoch, m.uuid AS manager_id, c.report_trouble AS trouble\n" + STUCK
SETUP_MARGIN_SECONDS = 120.0
"""A setup may take its timeout and this much longer."""


@dataclass(frozen=True, slots=True)
class _Stuck:
    epoch: int
    manager_id: UUID
    trouble: str | None


def progress_parameters(store: Store) -> dict[str, object]:
    """Return the parameters of the statements about progress."""
    return {
        "suspect_after": store.suspect_after.total_seconds(),
        "setup_margin": SETUP_MARGIN_SECONDS,
        "stuck_after": store.stuck_after.total_seconds(),
    }


async def end_stuck_leases(store: Store) -> int:
    """End every lease that makes no progress, remember it as a failure; return how many there were.

    One transaction for each: a lease is locked before its group, and looked at again under its lock.
    """
    parameters = progress_parameters(store)
    async with store.database.connection() as connection:
        stuck = await fetch_all(connection, _Stuck, STUCK_LEASES, parameters)
    ended = 0
    for lease in stuck:
        async with store.database.transaction() as connection:
            ended += await _end_if_stuck(connection, lease, parameters)
    return ended


async def _end_if_stuck(
    connection: Connection, found: _Stuck, parameters: Mapping[str, object]
) -> bool:
    lease = await lock_lease(connection, found.manager_id, found.epoch)
    again = await fetch_all(
        connection,
        _Stuck,
        STUCK_LEASES + " AND l.epoch = %(epoch)s",
        {**parameters, "epoch": found.epoch},
    )
    if lease is None or not again:
        return False
    await end_lease(connection, lease, ReleaseReason.NO_PROGRESS)
    reason = "its lease claimed nothing while tasks were ready and none ran on it"
    if again[0].trouble is not None:
        reason += f"; {again[0].trouble}"
    await record_failure(
        connection, lease.manager_number, lease.group_number, HostFailureKind.NO_PROGRESS, reason
    )
    return True
