"""The members of many task groups as sets of hosts: one set for each distinct way of matching (C-32).

Task groups that ask for the same tags since the same time share a set, so that 1,000 groups over 10,000 hosts
cost no 10 million comparisons. ``membership.is_member`` is the rule; this computes it for all hosts at once.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import and_, or_

from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.store.leases.membership import SelectingGroup, TaggedHost, TagMatch, tags_at, tags_fit

Match = tuple[frozenset[str], TagMatch, int]
"""What decides who is matched: tags, how they match, and the version of the tags of hosts."""


class MemberSets:
    """Sets of members among these hosts. ``ordinal`` returns the bit of a host by its number."""

    def __init__(self, hosts: Iterable[TaggedHost], ordinal: Callable[[int], int]) -> None:
        self._bit: Mapping[int, Hosts] = {}
        all_hosts = list(hosts)
        self._bit = {host.number: 1 << ordinal(host.number) for host in all_hosts}
        self._every = _union(all_hosts, ordinal)
        self._changed = [host for host in all_hosts if host.former_tags]
        with_tag: dict[str, list[TaggedHost]] = {}
        for host in all_hosts:
            for tag in host.tags:
                with_tag.setdefault(tag, []).append(host)
        self._with_tag = {tag: _union(those, ordinal) for tag, those in with_tag.items()}
        self._matched: dict[Match, Hosts] = {}

    def of(self, group: SelectingGroup) -> Hosts:
        """Return the members of the group."""
        added = self._some(group.added)
        if group.assignment_method == "user_specified":
            return added
        match = (group.member_tags, group.member_tag_match, self._version(group.member_version))
        matched = self._matched.get(match)
        if matched is None:
            matched = self._matched[match] = self._match(*match)
        return (matched & ~self._some(group.removed)) | added

    def removed(self, group: SelectingGroup) -> Hosts:
        """Return the hosts that a user removed from the group."""
        return self._some(group.removed)

    def _some(self, numbers: Iterable[int]) -> Hosts:
        return reduce(or_, (self._bit.get(number, NONE) for number in numbers), NONE)

    def _version(self, version: int) -> int:
        """Return the next change of tags after the version: it stands for all versions before it."""
        later = (
            former.until_version
            for host in self._changed
            for former in host.former_tags
            if former.until_version > version
        )
        return min(later, default=0)

    def _match(self, tags: frozenset[str], tag_match: TagMatch, next_change: int) -> Hosts:
        sets = [self._with_tag.get(tag, NONE) for tag in tags]
        matched = (
            reduce(and_, sets, self._every) if tag_match == "all" or not sets else reduce(or_, sets)
        )
        if not next_change:
            return matched
        for host in self._changed:
            bit = self._bit[host.number]
            fits = tags_fit(tags_at(host, next_change - 1), tags, tag_match)
            matched = matched | bit if fits else matched & ~bit
        return matched


def _union(hosts: Iterable[TaggedHost], ordinal: Callable[[int], int]) -> Hosts:
    """Return the set of these hosts, in time that grows with their number only."""
    ordinals = [ordinal(host.number) for host in hosts]
    bits = bytearray(max(ordinals, default=0) // 8 + 1)
    for one in ordinals:
        bits[one >> 3] |= 1 << (one & 7)
    return int.from_bytes(bits, "little")
