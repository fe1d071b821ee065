"""Compares kept facts with facts that were read without them: both as of one snapshot of PostgreSQL. Pure."""

from collections.abc import Sequence
from operator import attrgetter

from mitosis.scheduling.policy import HOUR
from mitosis.store.leases.fleet import HostRow
from mitosis.store.leases.fleet_rows import FleetRows

MAY_DIFFER = frozenset(
    {
        "last_contact_at",  # of a host in contact; the fact that it is in contact is compared
        "moved_at",  # those of an hour ago are forgotten when they are used
        "progress",  # of an idle lease; the fact is compared
        "empty_since",
    }
)
_ROW = attrgetter(*sorted(set(HostRow.__dataclass_fields__) - MAY_DIFFER))


def differing_hosts(kept: FleetRows, fresh: FleetRows, now: float) -> Sequence[int]:
    """Return the numbers of hosts about which the facts, or those about their lease, are not the same."""
    wrong = kept.hosts.keys() ^ fresh.hosts.keys()
    wrong |= {
        number
        for number in kept.hosts.keys() & fresh.hosts.keys()
        if _facts(kept, number, now) != _facts(fresh, number, now)
    }
    leases = kept.snapshot.leases, fresh.snapshot.leases
    for one, other in (leases, leases[::-1]):
        wrong |= {lease.host for number, lease in one.items() if other.get(number) != lease}
    return sorted(wrong)


def _facts(rows: FleetRows, number: int, now: float) -> tuple[object, ...]:
    row, fact = rows.hosts[number], rows.snapshot.hosts[number].fact
    moves = sum(at > now - HOUR for at in row.moved_at)
    return _ROW(row), fact.in_contact, fact.unclean, moves
