"""Gives free hosts to the task groups that wait, best first (C-31)."""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from mitosis.scheduling.host_sets import NONE, Hosts, lowest
from mitosis.scheduling.round import Round
from mitosis.scheduling.set_names import MANY_DORMANT
from mitosis.scheduling.states import Bucket, GroupState
from mitosis.scheduling.waiting_line import WaitingLine


def offer_freed_hosts(round_: Round) -> None:
    """Offer every host that was freed for a task group to that group, if it can still use it."""
    for number in sorted(round_.snapshot.freed):
        for freed in round_.snapshot.freed[number].freed_for:
            group = round_.snapshot.groups.get(freed.group)
            if group is None or not round_.wants_promised(group) or round_.is_over:
                continue
            ordinal = round_.snapshot.ordinal(number)
            hosts = group.fact.members & round_.free(group) & round_.unfailed(group)
            if hosts >> ordinal & 1 and round_.room(ordinal).covers(group.fact.demand):
                round_.offer(group, ordinal, freed=freed)


def offer_free_hosts(round_: Round) -> None:
    """Offer free hosts until no task group that waits has one to take, or the actions are too many."""
    if not round_.has_free_hosts():
        return
    line = WaitingLine(round_, round_.free)
    wanted = reduce(or_, line.hosts.values(), NONE)
    spared = _hosts_of_choosier(line.hosts)
    for group, bucket in line:
        if round_.missing(group) <= 0:
            continue
        hosts = line.hosts[bucket] & round_.free(group)
        if not hosts:
            line.exhaust(bucket)
            continue
        ordinal = _choose(round_, group, hosts, spared.get(bucket, NONE))
        if ordinal is None:
            continue
        round_.offer(group, ordinal)
        if round_.missing(group) > 0:
            line.again(group, bucket)
        if round_.is_over or not wanted & ~round_.full:
            return


def _hosts_of_choosier(hosts: Mapping[Bucket, Hosts]) -> dict[Bucket, Hosts]:
    """Return, for each bucket, the hosts that some bucket with fewer hosts could use."""
    found: dict[Bucket, Hosts] = {}
    fewer = equal = NONE
    size = -1
    for bucket in sorted(hosts, key=lambda bucket: hosts[bucket].bit_count()):
        if hosts[bucket].bit_count() > size:
            size, fewer = hosts[bucket].bit_count(), fewer | equal
        found[bucket] = fewer
        equal |= hosts[bucket]
    return found


def _choose(round_: Round, group: GroupState, hosts: Hosts, spared: Hosts) -> int | None:
    """Return the best of the hosts that has room.

    Those that failed at nothing for the task group go first; then those with its environment; then those that
    no choosier task group could use; then those with the fewest environments of others.
    """
    hosts &= round_.unfailed(group)
    while hosts:
        ordinal = lowest(_preferred(round_, group, hosts, spared))
        if round_.room(ordinal).covers(group.fact.demand):
            return ordinal
        round_.no_room(group, ordinal)
        hosts &= ~(1 << ordinal)
    return None


def _preferred(round_: Round, group: GroupState, hosts: Hosts, spared: Hosts) -> Hosts:
    sets, number = round_.snapshot.sets, group.fact.number
    hosts = hosts & ~(sets.get("doubtful", number) | sets.get("doubtful")) or hosts
    hosts = hosts & sets.get("warm", number) or hosts & ~spared or hosts
    for count in range(MANY_DORMANT):
        if hosts & sets.get("dormant", count):
            return hosts & sets.get("dormant", count)
    return hosts
