"""Hosts on the way to task groups: leases of others that are ended for them, and hosts freed for them."""

from collections import Counter
from collections.abc import Sequence

from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.scheduling.timetable import Owner


class Promises:
    """All promises of a snapshot, kept one fact at a time."""

    def __init__(self) -> None:
        self.hosts: dict[int, Hosts] = {}
        """Task group → the hosts on the way to it."""
        self._counts: dict[int, Counter[int]] = {}
        """Task group → ordinal of a host → its promises."""
        self._of: dict[Owner, list[int]] = {}

    def copy(self) -> "Promises":
        """Return the same promises, to be changed independently."""
        copied = Promises()
        copied.hosts = self.hosts.copy()
        copied._counts = {group: counts.copy() for group, counts in self._counts.items()}
        copied._of = self._of.copy()
        return copied

    def __contains__(self, owner: Owner) -> bool:
        """Return whether the owner has promised its host to a task group."""
        return owner in self._of

    def count(self, group: int) -> int:
        """Return how many promises a task group has."""
        return self._counts[group].total() if group in self._counts else 0

    def put(self, owner: Owner, ordinal: int, groups: list[int]) -> Sequence[tuple[int, int]]:
        """Make these the task groups that get the owner's host.

        Returns:
            What changed: task groups, and by how many promises.
        """
        former = self._of.get(owner, [])
        if former == groups:
            return ()
        self._of.pop(owner, None)
        if groups:
            self._of[owner] = groups
        changes = [(number, -1) for number in former] + [(number, 1) for number in groups]
        for number, by in changes:
            self._change(number, ordinal, by)
        return changes

    def _change(self, group: int, ordinal: int, by: int) -> None:
        counts = self._counts.setdefault(group, Counter())
        counts[ordinal] += by
        if counts[ordinal]:
            self.hosts[group] = self.hosts.get(group, NONE) | 1 << ordinal
            return
        del counts[ordinal]
        self.hosts[group] &= ~(1 << ordinal)
        if not counts:
            del self._counts[group], self.hosts[group]
