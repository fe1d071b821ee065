"""Matches hosts to task groups: pure functions over the facts of one assignment round.

Groups are served by priority, then age. Each gets as many hosts as it wants and are left: hosts that failed
at nothing for it first, then those with its ready environment, then those with the fewest environments of
other groups.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mitosis.store.leases.eligibility import CONDITIONS, Condition, GroupFacts, HostFacts


@dataclass(frozen=True, slots=True)
class Offer:
    """Numbers of a task group and of the manager that is offered to it."""

    group: int
    manager: int


def usable(
    hosts: Iterable[HostFacts], conditions: Sequence[Condition] = CONDITIONS
) -> dict[int, HostFacts]:
    """Return the hosts that fulfil the conditions on the host alone, by number."""
    of_host = [condition.of_host for condition in conditions if condition.of_host is not None]
    return {host.number: host for host in hosts if all(holds(host) for holds in of_host)}


def match(
    groups: Iterable[GroupFacts],
    hosts: dict[int, HostFacts],
    conditions: Sequence[Condition] = CONDITIONS,
) -> list[Offer]:
    """Return offers for these groups, in their order, and remove the hosts used from ``hosts``.

    Args:
        groups: best first.
        hosts: those of :func:`usable`; a group is checked against the conditions that name it.
        conditions: those that must hold.
    """
    of_group = [condition.of_group for condition in conditions if condition.of_group is not None]
    offers: list[Offer] = []
    for group in groups:
        if not hosts:
            break
        if not all(holds(group) for holds in of_group):
            continue
        able = _able(group, hosts, conditions)
        able.sort(
            key=lambda host: (
                host.has_failed(group.number),
                group.number not in host.warm,
                len(host.warm),
                host.number,
            )
        )
        for host in able[: group.wanted_leases - group.live_leases]:
            offers.append(Offer(group.number, host.number))
            del hosts[host.number]
    return offers


def _able(
    group: GroupFacts, hosts: dict[int, HostFacts], conditions: Sequence[Condition]
) -> list[HostFacts]:
    """Return the hosts that fulfil the conditions on host and group: one pass for each condition."""
    able = list(hosts.values())
    for condition in conditions:
        if (holds := condition.of_pair) is not None:
            able = [host for host in able if holds(host, group)]
    return able
