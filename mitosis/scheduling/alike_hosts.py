"""Finds the hosts on which the smallest change is looked for: of many that are alike, the first ones.

Hosts are alike if the same conditions fail on them, and if the changes that make these hold cost the same. Of
busy hosts, those come first whose leases are safe for the shortest time: the others cost more.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.host_sets import Hosts, ordinals
from mitosis.scheduling.predicates import Condition
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import HostState

Codes = tuple[str, ...]
"""Of the conditions that fail."""


def first_of_each_kind(
    round_: Round, conditions: Sequence[Condition], most: int
) -> Sequence[HostState]:
    """Return at most so many hosts of each kind (twice as many idle ones), in the order of their numbers."""
    found = chain.from_iterable(
        _first(round_, hosts, codes, most) for hosts, codes in _by_conditions(round_, conditions)
    )
    return sorted(found, key=lambda host: host.fact.number)


def _by_conditions(round_: Round, conditions: Sequence[Condition]) -> list[tuple[Hosts, Codes]]:
    """Return sets of hosts on which the same conditions fail."""
    found: list[tuple[Hosts, Codes]] = [(round_.snapshot.sets.get("known"), ())]
    for predicate, passing in conditions:
        parts = []
        for hosts, codes in found:
            parts.append((hosts & passing, codes))
            parts.append((hosts & ~passing, (*codes, predicate.code)))
        found = [part for part in parts if part[0]]
    return found


def _first(round_: Round, hosts: Hosts, codes: Codes, most: int) -> Iterator[HostState]:
    kinds: dict[Hashable, list[HostState]] = {}
    for ordinal in ordinals(hosts):
        host = round_.snapshot.host_at(ordinal)
        kinds.setdefault(_kind(round_, host, codes), []).append(host)
    for alike in kinds.values():
        yield from alike[:most] if len(alike) <= most else _soonest(round_, alike, most)


def _kind(round_: Round, host: HostState, codes: Codes) -> Hashable:
    """Return all on which the changes of a host depend, but for the times of its lease."""
    fact = host.fact
    silent_since = fact.last_contact_at if "no_contact" in codes else None
    held = _held(round_, host) if "busy" in codes else None
    return fact.tags, fact.cores, fact.capacity, fact.failures, silent_since, held


def _held(round_: Round, host: HostState) -> Hashable:
    if len(host.leases) != 1 or round_.moment.moved >> host.ordinal & 1:
        return host.ordinal
    lease = _lease(round_, host)
    if lease.number in round_.ended:
        return host.ordinal
    idle = lease.idle_since is not None
    return "lease", lease.group, lease.is_live, lease.contestable, lease.renewed, idle


def _soonest(round_: Round, alike: Sequence[HostState], most: int) -> Iterator[HostState]:
    """Yield the hosts whose leases are safe for the shortest time; without leases, the first."""
    if not all(host.leases for host in alike):
        yield from alike[:most]
        return
    leases = [(_lease(round_, host), host) for host in alike]
    by_affinity = sorted(leases, key=lambda pair: pair[0].affinity_until)[:most]
    by_idleness = sorted(leases, key=lambda pair: pair[0].idle_since or FOREVER)[:most]
    chosen = by_affinity
    if leases[0][0].idle_since is not None:
        chosen = list({pair[0].number: pair for pair in (*by_affinity, *by_idleness)}.values())
    for _, host in chosen:
        yield host


def _lease(round_: Round, host: HostState) -> Lease:
    return round_.snapshot.leases[next(iter(host.leases))]
