"""Reads the snapshot on which hosts are given to task groups: for a round, a dry run, or one explanation.

Loading takes no lock and writes nothing. A round loads under its advisory lock, so that no other round gives
the same hosts away; what other transactions change in between is checked again where an offer is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mitosis.scheduling.policy import Policy
from mitosis.scheduling.snapshot import Snapshot
from mitosis.store.leases.capacity import progress_parameters
from mitosis.store.leases.fleet import CLOCK, GROUPS_OF_ROUND, HOSTS_IN_CONTACT, GroupRow, HostRow
from mitosis.store.leases.fleet_rows import FleetRows
from mitosis.store.leases.lease_terms import policy_of
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_facts, fetch_one
from mitosis.store.store import Store


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of the transaction, in seconds since 1970."""

    now: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot, its time, and the rows from which it was made, by number."""

    snapshot: Snapshot
    now: float
    hosts: Mapping[int, HostRow]
    groups: Mapping[int, GroupRow]


def fact_parameters(store: Store) -> dict[str, object]:
    """Return the parameters of the statements that read facts of hosts."""
    return {**progress_parameters(store), "quarantine_after": store.quarantine_after}


async def load_fleet(connection: Connection, store: Store) -> Fleet:
    """Read every host in contact or with a lease, and every task group with unfinished tasks or leases.

    What ``kept_fleet`` keeps is compared with it.
    """
    policy = policy_of(store)
    clock = await read_clock(connection)
    hosts = await fetch_facts(connection, HostRow, HOSTS_IN_CONTACT, fact_parameters(store))
    values = {"hosts": max(1, min(len(hosts), policy.actions_per_round))}
    groups = await fetch_all(connection, GroupRow, GROUPS_OF_ROUND, values)
    return build_fleet(policy, clock.now, hosts, groups)


async def read_clock(connection: Connection) -> Clock:
    """Return the time of the transaction: the clock of all facts that it reads."""
    clock = await fetch_one(connection, Clock, CLOCK, {})
    assert clock is not None  # noqa: S101 - it always has a row
    return clock


def build_fleet(
    policy: Policy, now: float, hosts: Sequence[HostRow], groups: Iterable[GroupRow]
) -> Fleet:
    """Return the snapshot of these rows. Pure.

    A task group that only holds leases, and has no row, is known by its name and priority.
    """
    rows = FleetRows(policy)
    rows.change(now, hosts, groups)
    return Fleet(rows.snapshot, now, rows.hosts, rows.groups)
