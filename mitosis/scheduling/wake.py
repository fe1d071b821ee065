"""Finds the next time at which the clock alone changes a decision.

Only times that some waiting task group has a use for count, so a fleet with nothing to gain is left alone. A
time may be early (the next decision finds nothing and asks again), never late.
"""

from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mitosis.scheduling.actions import Wake, WakeReason
from mitosis.scheduling.claims import goes_before_all
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import Lease
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.policy import HOUR
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import Bucket, GroupState
from mitosis.scheduling.waiting_groups import WaitingKind

IDLE_STEP_SECONDS = 5.0
"""Hosts that become idle for long enough within such a time are given away together."""


def next_wake(round_: Round) -> Wake | None:
    """Return when to decide again, after all actions of this decision; None: only when a fact changes."""
    if round_.is_over:
        return Wake(round_.now, WakeReason.MORE)
    return min(_Wakes(round_).times(), key=lambda wake: wake.at, default=None)


def idle_until(round_: Round) -> Mapping[int, float]:
    """Return, for idle leases, the next time from which some waiting task group may take the host.

    Only of hosts that such a task group could use, were they free.
    """
    return dict(_Wakes(round_).idle_until())


@dataclass(slots=True)
class _Lane:
    """Waiting task groups of one priority and profile."""

    first: GroupState
    members: Hosts
    """Of all of them."""
    usable: Hosts
    """Those of the members that they could use, were they free."""
    priority: float
    """Of the first."""


class _Wakes:
    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._snapshot = round_.snapshot
        self._now = round_.now
        self._lanes = _waiting_lanes(round_)
        self._waiting_setups: Sequence[float] | None = None
        self._members: Hosts = NONE
        """Members of some waiting task group."""
        self._wanted: Hosts = NONE
        """Hosts that some waiting task group could use, were they free."""
        for lane in self._lanes:
            self._members |= lane.members
            self._wanted |= lane.usable

    def times(self) -> Iterator[Wake]:
        """Yield the first time of each kind."""
        yield from self._idle()
        yield from self._affinity()
        yield from self._failures()
        yield from self._moves()
        yield from self._starved()
        for at, _ in self._snapshot.times.promises.later(self._now):
            yield Wake(at, WakeReason.ON_THE_WAY)
            break
        for at, _ in self._snapshot.times.delayed.later(self._now):
            yield Wake(at, WakeReason.DELAYED)
            break

    def _idle(self) -> Iterator[Wake]:
        """Yield when an idle lease is idle for as long as some waiting task group needs (C-35).

        Whether that task group may use the host is not asked: the time may be too early. Times within
        ``IDLE_STEP_SECONDS`` count as one, so that many different setups cause few decisions.
        """
        times = list[float]()
        for at, number in self._idle_leases():
            if times and at > min(times) + IDLE_STEP_SECONDS:
                break
            times += self._idle_enough(self._snapshot.leases[number])
        if times:
            first = min(times)
            yield Wake(max(at for at in times if at <= first + IDLE_STEP_SECONDS), WakeReason.IDLE)

    def idle_until(self) -> Iterator[tuple[int, float]]:
        """Yield idle leases with the next time at which they are idle for long enough."""
        for _, number in self._idle_leases():
            for at in self._idle_enough(self._snapshot.leases[number]):
                yield number, at

    def _idle_enough(self, lease: Lease) -> Iterator[float]:
        """Yield the next time at which the lease is idle for as long as some waiting task group needs."""
        holder = self._snapshot.group_of(lease)
        settings = self._round.policy.settings_of(holder.fact.leases)

        def enough(setup: float) -> float:
            threshold = settings.idle(holder.work.teardown_seconds + setup)
            return (lease.idle_since or 0.0) + threshold

        setups = self._setups()
        place = bisect_right(setups, self._now + ROUNDING_SECONDS, key=enough)
        if place < len(setups):
            first = enough(setups[place])
            last = bisect_right(setups, first + IDLE_STEP_SECONDS, lo=place, key=enough)
            yield enough(setups[last - 1])

    def _setups(self) -> Sequence[float]:
        """Return the different durations of setups of waiting task groups."""
        if self._waiting_setups is None:
            kept = self._snapshot.waiting.setups
            more = {lane.first.work.setup_seconds for lane in self._lanes if not lane.first.bucket}
            self._waiting_setups = sorted({*kept, *more}) if more else kept
        return self._waiting_setups

    def _idle_leases(self) -> Iterator[tuple[float, int]]:
        """Yield the idle leases that may be of use: first in any order those that are due, then by time."""
        if not self._wanted & self._snapshot.sets.get("idle"):
            return
        now = self._now + ROUNDING_SECONDS
        for lease in self._round.idle_leases(self._wanted, due=True):
            settings = self._round.policy.settings_of(self._snapshot.group_of(lease).fact.leases)
            if (lease.idle_since or 0.0) + settings.longest_idle > now:
                yield self._now, lease.number
        for at, (number,) in self._snapshot.times.idle.later(self._now):
            if number not in self._round.ended and self._is_in(number, self._wanted):
                yield at, number

    def _is_in(self, lease: int, hosts: Hosts) -> bool:
        host = self._snapshot.leases[lease].host
        return bool(hosts >> self._snapshot.ordinal(host) & 1)

    def _affinity(self) -> Iterator[Wake]:
        takeable = NONE
        for name, hosts in self._snapshot.sets.of_kind("held_by").items():
            takeable |= self._takeable(name, hosts & self._wanted)
        for at, (number,) in self._snapshot.times.affinity.later(self._now) if takeable else ():
            if number not in self._round.ended and self._is_in(number, takeable):
                yield Wake(at, WakeReason.AFFINITY)
                return

    def _takeable(self, name: Hashable, hosts: Hosts) -> Hosts:
        """Return those hosts that some waiting task group could take from such holders after their affinity.

        name: their priority and their user group.
        """
        assert isinstance(name, tuple)  # noqa: S101 - see set_names
        priority, user_group = name
        found = NONE
        for lane in self._lanes if hosts else ():
            more = lane.usable & hosts & ~found
            if more and lane.priority >= priority and self._wins(lane.first, priority, user_group):
                found |= more
        return found

    def _wins(self, group: GroupState, priority: int, user_group: int) -> bool:
        """Return whether a waiting task group may go before some holder like this."""
        before = goes_before_all(self._round, group, priority, user_group)
        if before is None:
            # It depends on the leases of the holder; with two task groups, one may win.
            return any(other is not group for other in self._holders_like(group))
        return before

    def _holders_like(self, group: GroupState) -> Iterator[GroupState]:
        """Yield the task groups of the same priority and user group that hold leases."""
        for number, _ in self._snapshot.sets.by_group("held"):
            other = self._snapshot.groups[number]
            same_user_group = other.fact.user_group == group.fact.user_group
            if same_user_group and other.fact.priority == group.fact.priority:
                yield other

    def _failures(self) -> Iterator[Wake]:
        for at, (ordinal, _) in self._snapshot.times.retries.later(self._now):
            if self._members >> ordinal & 1:
                yield Wake(at, WakeReason.FAILURE)
                return

    def _moves(self) -> Iterator[Wake]:
        for ordinal in ordinals(self._round.moment.moved & self._wanted):
            moves = self._round.moment.moves(self._snapshot.host_at(ordinal))
            yield Wake(moves[-self._round.policy.moves_per_hour] + HOUR, WakeReason.MOVES)

    def _starved(self) -> Iterator[Wake]:
        after = self._round.policy.starve_after_seconds
        if after is None:
            return
        for since, (number,) in self._snapshot.times.hostless.later(self._now - after):
            if self._round.missing(self._snapshot.groups[number]) > 0:
                yield Wake(since + after, WakeReason.STARVED)
                return


def _waiting_lanes(round_: Round) -> Sequence[_Lane]:
    """Return the task groups that still wait, by priority and profile; those that starved by themselves."""
    groups = round_.snapshot.groups
    served = {groups[number].bucket for number in round_.gains}
    found = []
    for kind in round_.snapshot.waiting.kinds.values():
        if served and any(bucket in served for bucket in kind.buckets.values()):
            lane = _lane_of_served(round_, kind, served)
        else:
            lane = _lane(round_, groups[kind.some.line[0].number], kind.members)
        if lane is not None:
            found.append(lane)
    return [*found, *_by_the_clock(round_)]


def _lane_of_served(
    round_: Round, kind: WaitingKind, served: Collection[Bucket | None]
) -> _Lane | None:
    """Return those of a kind that still wait although some of it got a host."""
    groups = round_.snapshot.groups
    first, members = None, NONE
    for bucket in kind.buckets.values():
        waiting = (groups[key.number] for key in bucket.line)
        if bucket in served:
            waiting = (group for group in waiting if round_.missing(group) > 0)
        group = next(waiting, None)
        if group is not None:
            first, members = first or group, members | bucket.members
    return None if first is None else _lane(round_, first, members)


def _by_the_clock(round_: Round) -> Iterator[_Lane]:
    """Yield the task groups that wait because of the clock alone, or with another priority."""
    moment = round_.moment
    for number in {*moment.starved, *moment.broken_promises}:
        group = round_.snapshot.groups.get(number)
        if group is not None and group.fact.goes_on and round_.missing(group) > 0:
            yield _lane(round_, group, group.fact.members)


def _lane(round_: Round, first: GroupState, members: Hosts) -> _Lane:
    return _Lane(first, members, members & round_.able(first), round_.priority(first))
