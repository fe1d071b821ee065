"""The host time that switches between task groups have cost, and what kept environments have saved.

Setups and teardowns are counted where they are measured (``durations``), drains and returns as a lease ends.
"""

from dataclasses import dataclass
from typing import LiteralString

from mitosis.store.leases.durations import DURATION, DurationKind, record_duration
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load

SQL = load("leases/switching.sql")
END_OF_LEASE = SQL["end_of_lease"].replace("$duration$", DURATION)


@dataclass(frozen=True, slots=True)
class _End:
    group_number: int
    manager_number: int
    drain: float | None
    """Seconds of host time; None: it was not ended for another task group."""
    kept: float | None
    """Seconds of the setup that was not needed; None: the lease had one."""


def switching_of(rows: LiteralString) -> LiteralString:
    """Return the expression that sums up these rows of ``environment_durations AS d``."""
    return SQL["costs"].replace("$rows$", rows)


async def record_end(connection: Connection, epoch: int) -> None:
    """Count what the end of a lease shows, in the transaction that ends it. An offer shows nothing."""
    end = await fetch_one(connection, _End, END_OF_LEASE, {"epoch": epoch})
    if end is None:
        return
    measured: tuple[tuple[DurationKind, float | None], ...]
    measured = (("drain", end.drain), ("kept", end.kept))
    for kind, seconds in measured:
        if seconds is not None:
            await record_duration(
                connection, end.group_number, end.manager_number, kind, max(0.0, seconds)
            )
