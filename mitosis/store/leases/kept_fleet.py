"""Keeps the facts of decisions between rounds, and reads only what has changed (ADR 0013).

Triggers mark hosts whose facts have changed; contacts, task groups, and leases with tasks are read each time.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mitosis.scheduling.facts import Progress
from mitosis.store.kept import Kept
from mitosis.store.leases.capacity import PROGRESS
from mitosis.store.leases.fleet import (
    EMPTY_SINCE,
    GROUPS_OF_ROUND,
    HOSTS_IN_CONTACT,
    THESE_HOSTS,
    GroupRow,
    HostRow,
    hosts_statement,
)
from mitosis.store.leases.fleet_rows import FleetRows
from mitosis.store.leases.fleet_snapshot import Fleet, fact_parameters
from mitosis.store.leases.kept_check import differing_hosts
from mitosis.store.leases.lease_terms import policy_of
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.rows import fetch_all, fetch_facts, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

log = logging.getLogger(__name__)

SQL = load("leases/kept_fleet.sql")
CHANGED_HOSTS = hosts_statement(SQL["in_contact_or_leased"], THESE_HOSTS)
PROGRESS_OF_HOSTS = (
    SQL["progress_of_hosts"].replace("$progress$", PROGRESS).replace("$empty_since$", EMPTY_SINCE)
)
LONGEST_KEPT_SECONDS = 3600.0
"""Where no round reads all facts again, as in a process of the API alone, they are read after so long."""
KEPT_SECONDS = 600.0
"""After so long all facts are read again, and older marks are deleted."""
HOSTS_NAMED = 10
"""Of those about which kept facts were wrong."""
ALL_AT_ONCE = 0.3
"""When this part of the hosts has changed, reading all of them takes less time."""
NOTHING_SEEN: Mapping[str, object] = {"first": str(2**63 - 1), "own": "0", "seen": "1:1:"}


@dataclass(frozen=True, slots=True)
class _Changes:
    """What has changed, and what the statement that found it saw."""

    now: float
    origin: str
    seen: str
    """A snapshot of PostgreSQL: transactions that had ended."""
    first: int
    """All transactions before this one had."""
    own: int
    """The transaction of the statement; 0: it has no number."""
    oldest: int | None
    """The transaction of the oldest mark."""
    everything: bool
    hosts: list[int]
    silent: frozenset[tuple[int, float]]
    """Hosts that are not offline and have been silent for too long, and their last contact."""


@dataclass(frozen=True, slots=True)
class _Number:
    number: int


@dataclass(frozen=True, slots=True)
class _LeaseRow:
    number: int
    epoch: int
    progress: Progress
    empty_since: float | None


@dataclass(slots=True)
class _KeptFleet:
    database: Database
    parameters: Mapping[str, object]
    rows: FleetRows
    read_at: float
    """All of it; on the monotonic clock."""
    last: _Changes
    """As of when the rows are up to date."""

    @property
    def first(self) -> int:
        """The first transaction that may have changed something since."""
        return min(self.last.first, self.last.own or self.last.first)

    def seen(self) -> Mapping[str, object]:
        return {"first": str(self.first), "own": str(self.last.own), "seen": self.last.seen}

    def misses(self, found: _Changes) -> bool:
        """Return whether marks may be missing, or say that all is to be read again."""
        gone = found.oldest is None or found.oldest >= self.first
        return found.everything or found.origin != self.last.origin or gone


async def read_ahead(kept: Kept, store: Store) -> None:
    """Read all facts if none are kept, or for long: before the lock of the round, so that it stays short."""
    known = _usable(kept, store)
    if known is not None and time.monotonic() - known.read_at < KEPT_SECONDS:
        return
    async with store.database.connection() as connection:
        await connection.execute(SQL["forget_changes"], {"kept": KEPT_SECONDS})
    async with store.database.transaction() as connection:
        if known is None:
            kept.value = None
        else:
            await connection.execute(SQL["one_snapshot"])
        await present_fleet(kept, connection, store)
        if kept.value is known and known is not None:
            kept.value = await _read_again(connection, store, known)


async def _read_again(connection: Connection, store: Store, known: _KeptFleet) -> _KeptFleet:
    """Read all facts, and say so if those that were kept are others."""
    fresh = await _read(connection, store, known.last)
    hosts = differing_hosts(known.rows, fresh.rows, known.last.now)
    if hosts:
        names = [row.name for row in map(fresh.rows.hosts.get, hosts[:HOSTS_NAMED]) if row]
        log.error("scheduling.kept_facts_wrong", extra={"count": len(hosts), "hosts": names})
    return fresh


async def present_fleet(kept: Kept, connection: Connection, store: Store) -> Fleet:
    """Bring the kept facts up to date, or read them, and return them as they are now.

    The caller has the turn of ``kept``, and its transaction is a single one until it is over. It must not
    change what it is given.
    """
    known = _usable(kept, store)
    seen = NOTHING_SEEN if known is None else known.seen()
    values = {**fact_parameters(store), **seen}
    found = await fetch_one(connection, _Changes, SQL["changes"], values)
    assert found is not None  # noqa: S101 - it always has a row
    if known is None or known.misses(found) or not await _follow(connection, known, found):
        known = await _read(connection, store, found)
    known.last = found
    kept.value = known
    return Fleet(known.rows.snapshot, found.now, known.rows.hosts, known.rows.groups)


async def copied_fleet(
    store: Store, more_hosts: Collection[HostRow] = (), more_groups: Collection[GroupRow] = ()
) -> Fleet:
    """Return the facts as they are now, for an explanation: with these hosts and task groups too.

    The caller holds no connection: another one that has the turn may wait for it.
    """
    async with store.fleet.turn() as kept:
        known = _usable(kept, store)
        if known is not None and time.monotonic() - known.read_at >= LONGEST_KEPT_SECONDS:
            kept.value = None
        async with store.database.transaction() as connection:
            fleet = await present_fleet(kept, connection, store)
        rows: FleetRows = kept.value.rows
        snapshot = await asyncio.to_thread(rows.copied, fleet.now, more_hosts, more_groups)
        return Fleet(snapshot, fleet.now, {**fleet.hosts}, fleet.groups)


def _usable(kept: Kept, store: Store) -> _KeptFleet | None:
    """Return the kept facts, if they are of this database and these settings."""
    known = kept.value
    if not isinstance(known, _KeptFleet) or known.database is not store.database:
        return None
    same = known.parameters == fact_parameters(store)
    return known if same and known.rows.snapshot.policy == policy_of(store) else None


async def _read(connection: Connection, store: Store, found: _Changes) -> _KeptFleet:
    parameters = fact_parameters(store)
    numbers = [row.number for row in await fetch_all(connection, _Number, SQL["all_hosts"], {})]
    rows = FleetRows(policy_of(store), numbers)
    hosts = await fetch_facts(connection, HostRow, HOSTS_IN_CONTACT, parameters)
    groups = await _groups(connection, rows, len(hosts))
    rows.change(found.now, hosts, groups)
    return _KeptFleet(store.database, parameters, rows, time.monotonic(), found)


async def _groups(connection: Connection, rows: FleetRows, hosts: int) -> Sequence[GroupRow]:
    values = {"hosts": max(1, min(hosts, rows.snapshot.policy.actions_per_round))}
    return await fetch_all(connection, GroupRow, GROUPS_OF_ROUND, values)


async def _follow(connection: Connection, known: _KeptFleet, found: _Changes) -> bool:
    """Read what has changed; return False if that is too much."""
    rows = known.rows
    spoke = {number for number, _ in found.silent ^ known.last.silent}
    marked = {*found.hosts, *spoke}
    if len(marked) > ALL_AT_ONCE * max(len(rows.hosts), 100):
        return False
    hosts: Sequence[HostRow] = []
    if marked:
        values = {**known.parameters, "managers": sorted(marked)}
        hosts = await fetch_facts(connection, HostRow, CHANGED_HOSTS, values)
    gone = marked - {row.number for row in hosts}
    there = len((rows.hosts.keys() | {row.number for row in hosts}) - gone)
    groups = await _groups(connection, rows, there)
    moving = _moving(rows, groups) - marked
    leases = await _progress(connection, known, moving) if moving else []
    rows.change(found.now, hosts, groups, gone=gone, leases=leases)
    return True


def _moving(rows: FleetRows, groups: Sequence[GroupRow]) -> set[int]:
    """Return the hosts whose leases may have made progress without a mark.

    Those of a task group that has tasks, had some when it was last read, or was changed since.
    """
    found = set(rows.restless)
    for group in groups:
        former = rows.groups.get(group.number)
        rests = former is not None and former.changed_by == group.changed_by
        if not rests or group.unfinished > 0:
            found.update(rows.hosts_of(group.number))
    return found


async def _progress(
    connection: Connection, known: _KeptFleet, hosts: Collection[int]
) -> Sequence[HostRow]:
    """Return the rows of these hosts whose leases have made other progress."""
    values = {**known.parameters, "managers": sorted(hosts)}
    changed = []
    for lease in await fetch_all(connection, _LeaseRow, PROGRESS_OF_HOSTS, values):
        row = known.rows.hosts[lease.number]
        if row.lease_number == lease.epoch and (row.progress, row.empty_since) != (
            lease.progress,
            lease.empty_since,
        ):
            changed.append(replace(row, progress=lease.progress, empty_since=lease.empty_since))
    return changed
