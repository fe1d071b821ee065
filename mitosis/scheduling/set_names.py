"""The named sets of a snapshot: which of them a host is in, by its facts and its leases."""

from collections.abc import Iterable, Iterator

from mitosis.scheduling.facts import NEVER, Capacity, Group, Host, Lease
from mitosis.scheduling.host_sets import Name
from mitosis.scheduling.policy import Policy

MANY_DORMANT = 2
"""Hosts with so many ready environments, or more, are not distinguished."""


def names_of_host(host: Host, policy: Policy) -> Iterator[Name]:
    """Yield the sets that depend on the facts about a host."""
    yield "known", None
    yield "capacity", host.capacity
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


def names_of_leases(free: Capacity, leases: Iterable[tuple[Lease, Group]]) -> Iterator[Name]:
    """Yield the sets that depend on the leases of a host: what they leave free, what they are, and whose.

    Those of one priority and user group are together as well: their holders win and lose the same contests.
    """
    yield "free", free
    for lease, group in leases:
        if lease.is_live:
            yield "live", None
        if lease.contestable:
            holders = (group.priority, group.user_group)
            yield "held", lease.group
            yield "held_by", holders
            yield "working" if lease.idle_since is None else "idle", None
            if lease.renewed:
                yield "renewed", lease.group
                yield "renewed_by", holders
