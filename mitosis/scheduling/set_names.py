"""The named sets of a snapshot: which of them a host is in, by its facts and its leases."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from mitosis.scheduling.facts import NEVER, Capacity, Group, Host, Lease
from mitosis.scheduling.host_sets import Name
from mitosis.scheduling.policy import Policy

MANY_DORMANT = 2
"""Hosts with so many ready environments, or more, are not distinguished."""


def _of_machine(host: Host, _: Policy) -> Iterator[Name]:
    yield "known", None
    yield "capacity", host.capacity
    yield "cores", host.cores
    yield from (("serves", user_group) for user_group in host.serves)


def _of_environments(host: Host, policy: Policy) -> Iterator[Name]:
    yield "dormant", min(len(host.warm), MANY_DORMANT)
    yield from (("warm", group) for group in host.warm)
    if host.unclean:
        yield "unclean", None
        yield from (("cleaning", group) for group in host.unclean)
    if len(host.moved_at) >= policy.moves_per_hour:
        yield "moved", None


def _of_health(host: Host, _: Policy) -> Iterator[Name]:
    if host.in_contact:
        yield "in_contact", None
    if host.draining:
        yield "draining", None
    for failure in host.failures:
        yield "doubtful", failure.name[1]
        if failure.blocks_until > NEVER:
            yield "failed", failure.name


@dataclass(frozen=True, slots=True)
class Part:
    """Sets that depend on the same facts about a host, so that they change together."""

    name: str
    facts: Callable[[Host], tuple[object, ...]]
    names: Callable[[Host, Policy], Iterator[Name]]
    """The sets that a host is in."""


PARTS = (
    Part("machine", attrgetter("capacity", "cores", "serves"), _of_machine),
    Part("environments", attrgetter("warm", "unclean", "moved_at"), _of_environments),
    Part("health", attrgetter("in_contact", "draining", "failures"), _of_health),
)
"""All sets that depend on the facts about a host."""


def names_of_leases(free: Capacity, leases: Iterable[tuple[Lease, Group]]) -> frozenset[Name]:
    """Return the sets that depend on the leases of a host: what they leave free, what they are, and whose.

    Those of one priority and user group are together as well: their holders win and lose the same contests.
    """
    names = frozenset[Name]({("free", free)})
    for lease, group in leases:
        if lease.contestable:
            idle = lease.idle_since is not None
            of = _names_of_holder(
                lease.group, group.priority, group.user_group, idle, lease.renewed
            )
            names |= of
        elif lease.is_live:
            names |= _LIVE
    return names


_LIVE: frozenset[Name] = frozenset({("live", None)})


@lru_cache(maxsize=16_384)
def _names_of_holder(
    number: int, priority: int, user_group: int, idle: bool, renewed: bool
) -> frozenset[Name]:
    """Return the sets of a lease that others may take. Cached: a lease changes often between few states."""
    holders = (priority, user_group)
    names: set[Name] = {
        ("held", number),
        ("held_by", holders),
        ("idle" if idle else "working", None),
    }
    if renewed:
        names |= {("renewed", number), ("renewed_by", holders)}
    return _LIVE | names
