"""The named sets of a snapshot: which of them a host is in, by its facts and its leases."""

from collections.abc import Iterable, Iterator

from mitosis.scheduling.facts import NEVER, Capacity, Host, Lease
from mitosis.scheduling.host_sets import Name
from mitosis.scheduling.policy import Policy

MANY_DORMANT = 2
"""Hosts with so many ready environments, or more, are not distinguished."""


def names_of_host(host: Host, free: Capacity, policy: Policy) -> Iterator[Name]:
    """Yield the sets that depend on the facts about a host, and on what its leases leave free."""
    yield "known", None
    yield "capacity", host.capacity
    yield "free", free
    yield "cores", host.cores
    yield "dormant", min(len(host.warm), MANY_DORMANT)
    flags = {
        "in_contact": host.in_contact,
        "draining": host.draining,
        "unclean": bool(host.unclean),
        "moved": len(host.moved_at) >= policy.moves_per_hour,
    }
    yield from ((name, None) for name, is_set in flags.items() if is_set)
    yield from (("serves", user_group) for user_group in host.serves)
    yield from (("warm", group) for group in host.warm)
    yield from (("cleaning", group) for group in host.unclean)
    for failure in host.failures:
        yield "doubtful", failure.name[1]
        if failure.blocks_until > NEVER:
            yield "failed", failure.name


def names_of_leases(leases: Iterable[Lease]) -> Iterator[Name]:
    """Yield the sets that depend on the leases of a host: what they are, and of which task groups."""
    for lease in leases:
        if lease.is_live:
            yield "live", None
        if lease.contestable:
            yield "held", lease.group
            if lease.idle_since is None:
                yield "working", None
            if lease.renewed:
                yield "renewed", lease.group
