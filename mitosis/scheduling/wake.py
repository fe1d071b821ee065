"""Finds the next time at which the clock alone changes a decision.

Only times that some waiting task group has a use for count, so a fleet with nothing to gain is left alone. A
time may be early (the next decision finds nothing and asks again), never late.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mitosis.scheduling.actions import Wake, WakeReason
from mitosis.scheduling.claims import goes_before_all
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import Lease
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.policy import HOUR
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState, Profile

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
    usable: Hosts = NONE
    """Those of the members that they could use, were they free."""


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
        self._takeable: dict[Hashable, Hosts] = {}
        """By priority and user group of the holder."""
        for lane in self._lanes:
            lane.usable = lane.members & round_.able(lane.first)
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
            groups = self._snapshot.groups
            buckets = self._snapshot.buckets.values()
            numbers = {key.number for bucket in buckets for key in bucket.line}
            numbers.update(lane.first.fact.number for lane in self._lanes)
            self._waiting_setups = sorted({groups[one].work.setup_seconds for one in numbers})
        return self._waiting_setups

    def _idle_leases(self) -> Iterator[tuple[float, int]]:
        idle = self._snapshot.times.idle
        for entries in (idle.due(self._now), idle.later(self._now)):
            for at, (number,) in entries:
                if number not in self._round.ended and self._is_in(number, self._wanted):
                    yield at, number

    def _is_in(self, lease: int, hosts: Hosts) -> bool:
        host = self._snapshot.leases[lease].host
        return bool(hosts >> self._snapshot.ordinal(host) & 1)

    def _affinity(self) -> Iterator[Wake]:
        held = self._snapshot.sets.of_kind("held_by").items() if self._wanted else ()
        if not any(hosts & self._takeable_from(name) for name, hosts in held):
            return
        for at, (number,) in self._snapshot.times.affinity.later(self._now):
            holder = self._snapshot.group_of(self._snapshot.leases[number]).fact
            name = (holder.priority, holder.user_group)
            if number not in self._round.ended and self._is_in(number, self._takeable_from(name)):
                yield Wake(at, WakeReason.AFFINITY)
                return

    def _takeable_from(self, name: Hashable) -> Hosts:
        """Return the hosts that some waiting task group could take from such holders after their affinity.

        name: their priority and their user group.
        """
        found = self._takeable.get(name)
        if found is None:
            assert isinstance(name, tuple)  # noqa: S101 - see set_names
            found = NONE
            for lane in self._lanes:
                if self._wins(lane.first, *name):
                    found |= lane.usable
            self._takeable[name] = found
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
    lanes: dict[tuple[int, Profile], _Lane] = {}
    for bucket in round_.snapshot.buckets.values():
        first: GroupState | None = groups[bucket.line[0].number]
        if first is not None and round_.has_given and round_.missing(first) <= 0:
            waiting = (groups[key.number] for key in bucket.line)
            first = next((group for group in waiting if round_.missing(group) > 0), None)
        if first is None:
            continue
        name = (bucket.priority, bucket.profile)
        lane = lanes.get(name)
        if lane is None:
            lanes[name] = _Lane(first, bucket.members)
        else:
            lane.members |= bucket.members
    return [*lanes.values(), *_by_the_clock(round_)]


def _by_the_clock(round_: Round) -> Iterator[_Lane]:
    """Yield the task groups that wait because of the clock alone, or with another priority."""
    moment = round_.moment
    for number in {*moment.starved, *moment.broken_promises}:
        group = round_.snapshot.groups.get(number)
        if group is not None and group.fact.goes_on and round_.missing(group) > 0:
            yield _Lane(group, group.fact.members)
