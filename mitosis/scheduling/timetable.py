"""The times at which the clock alone changes something, by what is due then. Facts own the entries."""

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from mitosis.scheduling.due_times import DueTimes
from mitosis.scheduling.facts import FOREVER, NEVER, Lease, Work
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.states import HostState

Owner = tuple[str, int]
"""A fact that contributes entries: its kind and number."""
Kind = Literal["affinity", "idle", "retries", "promises", "hostless", "delayed"]
"""The name of a list of times."""
Timed = tuple[Kind, float, tuple[int, ...]]

_NO_TIMES: list[Timed] = []


class Timetable:
    """All times of a snapshot."""

    def __init__(self) -> None:
        self.affinity: DueTimes[tuple[int, ...]] = DueTimes()
        """(lease), by the end of the affinity."""
        self.idle: DueTimes[tuple[int, ...]] = DueTimes()
        """(lease), by the time at which it has been idle for the least threshold."""
        self.retries: DueTimes[tuple[int, ...]] = DueTimes()
        """(ordinal of the host, task group), by the end of a pause after a failure."""
        self.promises: DueTimes[tuple[int, ...]] = DueTimes()
        """(task group, host), by the time at which the host no longer counts for the task group."""
        self.hostless: DueTimes[tuple[int, ...]] = DueTimes()
        """(task group), by the time since when it has had no host."""
        self.delayed: DueTimes[tuple[int, ...]] = DueTimes()
        """(task group), by the time at which a delayed attempt is due."""
        self._of: dict[Owner, list[Timed]] = {}

    def put(self, owner: Owner, times: Iterable[Timed]) -> None:
        """Make these the times that the owner contributes."""
        timed = [entry for entry in times if entry[1] < FOREVER]
        former = self._of.get(owner, _NO_TIMES)
        if former == timed:
            return
        self._of.pop(owner, None)
        gone = list(former)
        for entry in timed:
            if entry in gone:
                gone.remove(entry)
            else:
                kind, at, item = entry
                self._list(kind).add(at, item)
        for kind, at, item in gone:
            self._list(kind).remove(at, item)
        if timed:
            self._of[owner] = timed

    def copy(self) -> "Timetable":
        """Return the same times, to be changed independently."""
        copied = Timetable()
        for kind in get_args(Kind):
            setattr(copied, kind, self._list(kind).copy())
        copied._of = self._of.copy()
        return copied

    def _list(self, kind: Kind) -> DueTimes[tuple[int, ...]]:
        found: DueTimes[tuple[int, ...]] = getattr(self, kind)
        return found

    def of_host(self, state: HostState, policy: Policy) -> Iterator[Timed]:
        """Yield the times that a host contributes."""
        for failure in state.fact.failures:
            if failure.blocks_until > NEVER:
                yield "retries", failure.blocks_until, (state.ordinal, failure.group)
        for freed in state.fact.freed_for:
            until = freed.at + policy.freed_counts_seconds
            yield "promises", until, (freed.group, state.fact.number)

    def of_lease(self, lease: Lease, least_idle: float, policy: Policy) -> Iterator[Timed]:
        """Yield the times that a lease contributes; ``least_idle``: the least threshold of its holder."""
        if lease.for_group is not None and not lease.is_live:
            until = lease.ending_since + policy.drain_counts_seconds
            yield "promises", until, (lease.for_group, lease.host)
        if not lease.contestable:
            return
        yield "affinity", lease.affinity_until, (lease.number,)
        if lease.idle_since is not None:
            yield "idle", lease.idle_since + least_idle, (lease.number,)

    def of_group(self, number: int, work: Work) -> Iterator[Timed]:
        """Yield the times that a task group contributes."""
        if work.hostless_since is not None:
            yield "hostless", work.hostless_since, (number,)
        if work.delayed_until is not None:
            yield "delayed", work.delayed_until, (number,)
