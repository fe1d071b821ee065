"""Finds the next time at which the clock alone changes a decision.

Only times that some waiting task group has a use for count, so a fleet with nothing to gain is left alone. A
time may be early (the next decision finds nothing and asks again), never late.
"""

from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mitosis.scheduling.actions import Wake, WakeReason
from mitosis.scheduling.claims import ranks_before
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.host_sets import NONE, Hosts, lowest, ordinals
from mitosis.scheduling.policy import HOUR
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import Bucket, GroupState
from mitosis.scheduling.waiting_groups import WaitingKind

IDLE_STEP_SECONDS = 5.0
"""Hosts that become idle for long enough within such a time are given away together."""

FEW_AFFINITIES = 64
"""So many leases are asked one by one; of more, it is asked first whether there is any of use."""


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


@dataclass(frozen=True, slots=True)
class _Lane:
    """Waiting task groups of one priority and user group."""

    priority: float
    user_group: int
    members: Hosts
    """Of all of them."""
    usable: Hosts
    """Those of the members that they could use, were they free."""
    of: WaitingKind | GroupState
    """All that wait of a kind, or one task group."""


class _Wakes:
    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._snapshot = round_.snapshot
        self._now = round_.now
        self._lanes = sorted(_waiting_lanes(round_), key=lambda lane: -lane.priority)
        self._waiting_setups: Sequence[float] | None = None
        self._known_takeable: dict[Hashable, Hosts] = {}
        self._members: Hosts = NONE
        """Members of some waiting task group."""
        self._wanted: Hosts = NONE
        """Hosts that some waiting task group could use, were they free."""
        for lane in self._lanes:
            self._members |= lane.members
            self._wanted |= lane.usable

    def times(self) -> Iterator[Wake]:
        """Yield the first time of each kind, except affinities that end after another of these times."""
        idle, others = list(self._idle()), list(self._other_times())
        yield from idle
        yield from self._affinity(min((wake.at for wake in (*idle, *others)), default=FOREVER))
        yield from others

    def _other_times(self) -> Iterator[Wake]:
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
        times, first = list[float](), FOREVER
        for at, lease in self._idle_leases():
            if at > first + IDLE_STEP_SECONDS:
                break
            enough = self._idle_enough(lease)
            times.append(enough)
            first = min(first, enough)
        if first < FOREVER:
            yield Wake(max(at for at in times if at <= first + IDLE_STEP_SECONDS), WakeReason.IDLE)

    def idle_until(self) -> Iterator[tuple[int, float]]:
        """Yield idle leases with the next time at which they are idle for long enough."""
        for _, lease in self._idle_leases():
            at = self._idle_enough(lease)
            if at < FOREVER:
                yield lease.number, at

    def _idle_enough(self, lease: Lease) -> float:
        """Return the next time at which the lease is idle for as long as some waiting task group needs.

        That is the teardown and the setup of the move, within the bounds of the holder's terms.
        """
        setups, holder = self._setups(), self._snapshot.groups[lease.group]
        if not setups:
            return FOREVER
        terms = self._round.policy.settings_of(holder.fact.leases)
        since, teardown = lease.idle_since or 0.0, holder.work.teardown_seconds
        now = self._now + ROUNDING_SECONDS
        if since + terms.idle(teardown + setups[-1]) <= now:
            return FOREVER
        # The first setup for which it is not idle for long enough by now, then the last of the same step.
        is_due = since + terms.least_idle <= now
        place = bisect_right(setups, now - since - teardown) if is_due else 0
        place = min(place, len(setups) - 1)
        until = since + terms.idle(teardown + setups[place]) + IDLE_STEP_SECONDS
        if since + terms.longest_idle <= until:
            place = len(setups) - 1
        else:
            place = bisect_right(setups, until - since - teardown, lo=place + 1) - 1
        return since + terms.idle(teardown + setups[place])

    def _setups(self) -> Sequence[float]:
        """Return the different durations of setups of waiting task groups."""
        if self._waiting_setups is None:
            kept = self._snapshot.waiting.setups
            single = (lane.of for lane in self._lanes if isinstance(lane.of, GroupState))
            more = {group.work.setup_seconds for group in single if group.bucket is None}
            self._waiting_setups = sorted({*kept, *more}) if more else kept
        return self._waiting_setups

    def _idle_leases(self) -> Iterator[tuple[float, Lease]]:
        """Yield the idle leases that may be of use: first in any order those that are due, then by time."""
        if not self._wanted & self._snapshot.sets.get("idle"):
            return
        now, groups = self._now + ROUNDING_SECONDS, self._snapshot.groups
        terms = self._round.policy.leases
        for lease, _ in self._round.idle_leases(self._wanted):
            longest_idle = (groups[lease.group].fact.leases or terms).longest_idle
            if (lease.idle_since or 0.0) + longest_idle > now:
                yield self._now, lease
        for at, (number,) in self._snapshot.times.idle.later(self._now):
            if number not in self._round.ended and self._is_in(number, self._wanted):
                yield at, self._snapshot.leases[number]

    def _is_in(self, lease: int, hosts: Hosts) -> bool:
        host = self._snapshot.leases[lease].host
        return bool(hosts >> self._snapshot.ordinal(host) & 1)

    def _affinity(self, until: float) -> Iterator[Wake]:
        """Yield the first end of an affinity that is of use, if it is not after ``until``."""
        affinity, ended = self._snapshot.times.affinity, self._round.ended
        many = affinity.count_due(until) - affinity.count_due(self._now) > FEW_AFFINITIES
        if many and not any(map(self._takeable, self._snapshot.sets.of_kind("held_by"))):
            return
        for at, (number,) in affinity.later(self._now) if self._wanted else ():
            if at > until:
                return
            holder = self._snapshot.group_of(self._snapshot.leases[number]).fact
            hosts = self._takeable((holder.priority, holder.user_group))
            if number not in ended and self._is_in(number, hosts):
                yield Wake(at, WakeReason.AFFINITY)
                return

    def _takeable(self, name: Hashable) -> Hosts:
        """Return the hosts that some waiting task group could take from such holders after their affinity.

        name: their priority and their user group.
        """
        found = self._known_takeable.get(name)
        if found is None:
            hosts = self._snapshot.sets.get("held_by", name) & self._wanted
            found = self._known_takeable[name] = self._takeable_of(name, hosts)
        return found

    def _takeable_of(self, name: Hashable, hosts: Hosts) -> Hosts:
        assert isinstance(name, tuple)  # noqa: S101 - see set_names
        found = NONE
        for lane in self._lanes:
            if lane.priority < name[0] or found == hosts:
                break
            more = lane.usable & hosts & ~found
            if not more:
                continue
            before = ranks_before(self._round, (lane.priority, lane.user_group), name)
            if before is None:
                more &= self._of_others(lane, name)
            if before is not False:
                found |= more
        return found

    def _of_others(self, lane: _Lane, name: tuple[int, int]) -> Hosts:
        """Return the hosts that task groups of a lane could use beside one that holds all leases like these.

        It depends on the leases of holder and waiting task group; with two task groups, one may win.
        """
        sole = self._sole_holder(name)
        groups = self._snapshot.groups
        if sole is None:
            return lane.usable
        if isinstance(lane.of, GroupState):
            return NONE if lane.of is sole else lane.usable
        if sole.bucket not in lane.of.buckets.values():
            return lane.usable
        found = NONE
        for bucket in lane.of.buckets.values():
            others = (groups[key.number] for key in bucket.line if key.number != sole.fact.number)
            if any(self._round.missing(other) > 0 for other in others):
                found |= bucket.members
        return found & lane.usable

    def _sole_holder(self, name: tuple[int, int]) -> GroupState | None:
        """Return the task group that holds all leases of a priority and a user group, if it is one."""
        sets = self._snapshot.sets
        hosts = sets.get("held_by", name)
        holders = self._holders_on(lowest(hosts), name)
        if hosts & ~sets.get("held", holders[0].fact.number):
            return None
        # It has a lease on each of these hosts; another task group may have one beside it.
        several = (on for on in ordinals(hosts) if len(self._snapshot.host_at(on).leases) > 1)
        alone = all(one is holders[0] for on in several for one in self._holders_on(on, name))
        return holders[0] if alone else None

    def _holders_on(self, ordinal: int, name: tuple[int, int]) -> Sequence[GroupState]:
        leases = (lease for lease in self._snapshot.leases_on(ordinal) if lease.contestable)
        groups = [self._snapshot.group_of(lease) for lease in leases]
        return [one for one in groups if (one.fact.priority, one.fact.user_group) == name]

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
    served = {round_.snapshot.groups[number].bucket for number in round_.gains}
    found = []
    for kind in round_.snapshot.waiting.kinds.values():
        members = kind.members
        if served and not served.isdisjoint(kind.buckets.values()):
            members = _members_of_waiting(round_, kind, served)
        if members:
            usable = members & round_.usable(kind)
            found.append(_Lane(kind.priority, kind.profile.user_group, members, usable, kind))
    return [*found, *_by_the_clock(round_)]


def _members_of_waiting(
    round_: Round, kind: WaitingKind, served: Collection[Bucket | None]
) -> Hosts:
    """Return the members of those of a kind that still wait although some of it got a host."""
    groups, found = round_.snapshot.groups, NONE
    for bucket in kind.buckets.values():
        waiting = (groups[key.number] for key in bucket.line)
        if bucket not in served or any(round_.missing(group) > 0 for group in waiting):
            found |= bucket.members
    return found


def _by_the_clock(round_: Round) -> Iterator[_Lane]:
    """Yield the task groups that wait because of the clock alone, or with another priority."""
    for group in round_.moment.aside:
        if round_.missing(group) > 0:
            members = group.fact.members
            usable = members & round_.able(group)
            name = round_.priority(group), group.fact.user_group
            yield _Lane(*name, members, usable, group)
