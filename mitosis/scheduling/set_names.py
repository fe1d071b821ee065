"""The named sets of a snapshot: which of them a host is in, by its facts and its leases."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
