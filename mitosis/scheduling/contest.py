"""Takes hosts from the task groups that hold them, for those that wait (C-03, C-31, C-35, C-36)."""

from collections.abc import Iterable
from typing import NamedTuple

from mitosis.scheduling.actions import EndLease, EndReason
from mitosis.scheduling.claims import Claim, claim, move_seconds
from mitosis.scheduling.contestable import BusyHosts, IdleHosts
from mitosis.scheduling.facts import Lease
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import Bucket, GroupState
from mitosis.scheduling.waiting_groups import WaitingKind
from mitosis.scheduling.waiting_line import WaitingLine


class _Taking(NamedTuple):
    """The leases of one host whose ends make room for a task group."""

    cost_seconds: float
    leases: list[tuple[Lease, Claim]]


def take_hosts(round_: Round) -> None:
    """End leases for task groups that wait, until none can take a host, or the actions are too many."""
    wanted = round_.wanted()
    if wanted:
        _Contest(round_, wanted).run()


class _Contest:
    def __init__(self, round_: Round, wanted: Hosts) -> None:
        self._round = round_
        self._idle = IdleHosts(round_, wanted)
        self._busy = BusyHosts(round_, wanted)
        busy = self._busy.all & ~round_.moment.moved
        self._left: Hosts = self._idle.all | busy
        """Hosts of which nothing has been taken. A host is taken from once in a decision."""
        self._hopeless: set[tuple[Bucket, bool]] = set()
        """Buckets whose task groups, those with a host or those without, can take none as things are."""
        self._found_busy = False
        """The last task group found a host with work. As long as each does, to ask first costs more than it
        saves."""

    def run(self) -> None:
        round_ = self._round
        if not self._left or not self._is_open():
            return
        line = WaitingLine(round_, lambda group: round_.able(group) & self._left, self._open_to)
        for group, bucket in line:
            if round_.missing(group) <= 0:
                continue
            taking = self._find(group, bucket, line)
            if taking is None:
                continue
            self._take(group, taking, line)
            if round_.is_over:
                return
            if round_.missing(group) > 0:
                line.again(group, bucket)

    def _open_to(self, bucket: Bucket) -> Hosts:
        """Return the hosts that some task group of a bucket may take, now or when shares have changed.

        Not for one that has starved: it goes before all.
        """
        return self._idle.ripe(bucket.setups[0]) | self._busy.up_to(bucket.priority)

    def _is_open(self) -> bool:
        """Return whether some task group may take a host, by what all of its kind have in common.

        In a fleet at rest none may. Then nothing about single ones is asked.
        """
        round_ = self._round
        if any(self._some_may_take(kind) for kind in round_.snapshot.waiting.kinds.values()):
            return True
        # Buckets count hosts that are lost or late, so these are asked one by one.
        numbers = {*round_.moment.starved, *round_.moment.broken_promises, *round_.lost}
        others = (round_.snapshot.groups[number] for number in numbers)
        return any(round_.missing(one) > 0 and self._may_take(one) for one in others)

    def _some_may_take(self, kind: WaitingKind) -> bool:
        hosts, buckets = self._round.usable(kind) & self._left, kind.buckets.values()
        idle = hosts & self._idle.all
        if idle and any(idle & one.members & self._idle.ripe(one.setups[0]) for one in buckets):
            return True
        of = kind.priority, kind.profile.user_group
        if self._reaches_busy(*of, hosts, hostless=False):
            return True
        renewed, of_hostless = hosts & self._busy.renewed, NONE
        for one in buckets if renewed else ():
            if not one.line[0].leases:
                of_hostless |= one.members
        return self._reaches_busy(*of, renewed & of_hostless, hostless=True)

    def _may_take(self, group: GroupState) -> bool:
        hosts = group.fact.members & self._round.able(group) & self._left
        if hosts & self._idle.ripe(group.work.setup_seconds):
            return True
        priority, hostless = self._round.priority(group), not self._round.leases(group)
        return self._reaches_busy(priority, group.fact.user_group, hosts, hostless=hostless)

    def _reaches_busy(
        self, priority: float, user_group: int, hosts: Hosts, *, hostless: bool
    ) -> bool:
        """Return whether some task group of a priority and a user group may take one with work."""
        hosts &= self._busy.all if hostless else self._busy.due
        if not hosts:
            return False
        return bool(hosts & self._busy.reached(priority, user_group, hostless=hostless))

    def _find(self, group: GroupState, bucket: Bucket, line: WaitingLine) -> _Taking | None:
        hosts = line.hosts[bucket] & self._left
        if not hosts:
            line.exhaust(bucket)
            return None
        hostless = not self._round.leases(group)
        if (bucket, hostless) in self._hopeless:
            return None
        idle = hosts & self._idle.ripe(bucket.setups[0])
        taking = self._search_idle(group, idle) if idle else None
        if taking is not None:
            return taking
        of = self._round.priority(group), group.fact.user_group
        if self._found_busy or self._reaches_busy(*of, hosts, hostless=hostless):
            hosts &= self._round.unfailed(group)
            taking = self._search(group, self._busy.takeable(group, hosts))
            self._found_busy = taking is not None
        elif not idle and group.fact.number not in self._round.moment.starved:
            self._hopeless.add((bucket, hostless))
        return taking

    def _search_idle(self, group: GroupState, hosts: Hosts) -> _Taking | None:
        return self._search(group, self._idle.takeable(group, hosts & self._round.unfailed(group)))

    def _search(self, group: GroupState, takeable: Iterable[Hosts]) -> _Taking | None:
        for able in takeable:
            for ordinal in ordinals(able):
                taking = self._taking(group, ordinal)
                if taking is not None:
                    return taking
        return None

    def _taking(self, group: GroupState, ordinal: int) -> _Taking | None:
        """Return the cheapest leases of a host whose ends make room; None if they cannot."""
        round_ = self._round
        found = []
        for lease in round_.snapshot.leases_on(ordinal):
            right = claim(round_, group, lease)
            if isinstance(right, Claim):
                found.append((move_seconds(round_, group, lease), lease.number, lease, right))
        if len(found) > 1:
            found.sort(key=lambda entry: entry[:2])
        room, demand = round_.room(ordinal), group.fact.demand
        for count, (_, _, lease, _) in enumerate(found, start=1):
            room = room.plus(round_.snapshot.group_of(lease).fact.demand)
            if room.covers(demand):
                taken = found[:count]
                cost = sum(entry[0] for entry in taken)
                return _Taking(cost, [(lease, right) for _, _, lease, right in taken])
        return None

    def _take(self, group: GroupState, taking: _Taking, line: WaitingLine) -> None:
        round_ = self._round
        rank = round_.rank(group)
        for lease, right in taking.leases:
            holder = round_.snapshot.group_of(lease)
            grace = round_.policy.settings_of(holder.fact.leases).preemption_grace
            round_.end(
                EndLease(
                    lease=lease.number,
                    host=lease.host,
                    reason=right.reason,
                    ask_back_at=round_.now + (grace if right.reason is EndReason.AFFINITY else 0.0),
                    for_group=group.fact.number,
                    rank=rank,
                    since=right.since,
                    threshold_seconds=right.threshold_seconds,
                    cost_seconds=taking.cost_seconds,
                )
            )
            self._left &= ~(1 << round_.snapshot.ordinal(lease.host))
            line.share_fell(holder.fact.user_group)
        round_.gain(group)
        self._busy.shares_changed()
        self._hopeless.clear()
