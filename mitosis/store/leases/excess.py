"""Ends the leases that a task group has beyond its ``max_managers``, after the number was lowered.

Last come, first out. An offer is withdrawn; under any other lease running tasks finish, and the rest goes
to the hosts that stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load

SQL = load("leases/excess.sql")


@dataclass(frozen=True, slots=True)
class CountedLease:
    """A lease that is offered or active, of a group with a limit."""

    epoch: int
    group: int
    most: int
    """``max_managers`` of the group."""


class ExcessEnded(NamedTuple):
    """How many leases started to end, and how many are left because another transaction holds them."""

    ended: int
    left: int


def excess_leases(leases: Iterable[CountedLease]) -> list[int]:
    """Return the epochs to end: of each group the highest ones beyond its limit."""
    by_group = attrgetter("group")
    ordered = sorted(leases, key=attrgetter("group", "epoch"))
    return [
        lease.epoch
        for _, held in groupby(ordered, by_group)
        for index, lease in enumerate(held)
        if index >= lease.most
    ]


async def end_excess_leases(connection: Connection) -> ExcessEnded:
    """End what is in excess; the caller has the lock of the round and holds no group."""
    counted = await fetch_all(connection, CountedLease, SQL["over_limit"], {})
    excess = excess_leases(counted)
    if not excess:
        return ExcessEnded(0, 0)
    values = {"epochs": number_array(excess)}
    ended = (await connection.execute(SQL["end_excess"], values)).rowcount
    return ExcessEnded(ended, len(excess) - ended)
