"""The time of the next decision once more, without any set kept for it: every group, host and lease is asked.

It is for hosts with room for one lease.
"""

from collections.abc import Iterator, Sequence

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import Wake, WakeReason
from mitosis.scheduling.claims import goes_before_all
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import FOREVER, NEVER, Lease
from mitosis.scheduling.policy import HOUR
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState
from mitosis.scheduling.wake import IDLE_STEP_SECONDS

Promise = tuple[float, int, int]
"""Until when it counts, the task group, the host."""


def promises(round_: Round) -> Iterator[Promise]:
    """The hosts on the way."""
    policy = round_.policy
    for number, host in round_.snapshot.hosts.items():
        for freed in host.fact.freed_for:
            yield freed.at + policy.freed_counts_seconds, freed.group, number
    for lease in round_.snapshot.leases.values():
        if lease.state is LeaseState.ENDING and lease.for_group is not None:
            yield lease.ending_since + policy.drain_counts_seconds, lease.for_group, lease.host


def plain_broken_promises(round_: Round) -> dict[int, int]:
    """What ``Moment.broken_promises`` should be."""
    broken: dict[int, int] = {}
    for until, number, host in promises(round_):
        group = round_.snapshot.groups.get(number)
        if group is None:
            continue
        hosts = group.fact.members & round_.able(group) & round_.unfailed(group)
        if until <= round_.now or not hosts >> round_.snapshot.ordinal(host) & 1:
            broken[number] = broken.get(number, 0) + 1
    return broken


def plain_wake(round_: Round) -> Wake | None:
    """What ``next_wake`` should be."""
    if round_.is_over:
        return Wake(round_.now, WakeReason.MORE)
    groups = round_.snapshot.groups.values()
    waiting = [one for one in groups if one.fact.goes_on and round_.missing(one) > 0]
    times = [
        Wake(at, reason)
        for reason, found in (
            (WakeReason.IDLE, _idle(round_, waiting)),
            (WakeReason.AFFINITY, _affinity(round_, waiting)),
            (WakeReason.FAILURE, _failures(round_, waiting)),
            (WakeReason.MOVES, _moves(round_, waiting)),
            (WakeReason.STARVED, _starved(round_)),
            (WakeReason.ON_THE_WAY, [until for until, _, _ in promises(round_)]),
            (WakeReason.DELAYED, [one.work.delayed_until or NEVER for one in groups]),
        )
        for at in found
        if round_.now + ROUNDING_SECONDS < at < FOREVER
    ]
    return min(times, key=lambda wake: wake.at, default=None)


def _can_use(round_: Round, group: GroupState, host: int) -> bool:
    usable = group.fact.members & round_.able(group)
    return bool(usable >> round_.snapshot.ordinal(host) & 1)


def _contestable(round_: Round, waiting: Sequence[GroupState]) -> Iterator[Lease]:
    """The leases on hosts that some waiting task group could use."""
    for lease in round_.snapshot.leases.values():
        if round_.is_live(lease) and any(_can_use(round_, one, lease.host) for one in waiting):
            yield lease


def _idle(round_: Round, waiting: Sequence[GroupState]) -> Sequence[float]:
    groups = round_.snapshot.groups.values()
    in_line = [one for one in groups if one.bucket is not None]
    setups = {one.work.setup_seconds for one in [*waiting, *in_line]}
    times = list[float]()
    for lease in _contestable(round_, waiting):
        if lease.idle_since is None:
            continue
        holder = round_.snapshot.group_of(lease)
        settings = round_.policy.settings_of(holder.fact.leases)
        enough = sorted(
            at
            for setup in setups
            if (at := lease.idle_since + settings.idle(holder.work.teardown_seconds + setup))
            > round_.now + ROUNDING_SECONDS
        )
        times += [at for at in enough if at <= enough[0] + IDLE_STEP_SECONDS][-1:]
    return [max(at for at in times if at <= min(times) + IDLE_STEP_SECONDS)] if times else []


def _affinity(round_: Round, waiting: Sequence[GroupState]) -> Iterator[float]:
    for lease in _contestable(round_, waiting):
        holder = round_.snapshot.group_of(lease).fact
        users = [one for one in waiting if _can_use(round_, one, lease.host)]
        if any(_may_win(round_, one, holder.priority, holder.user_group) for one in users):
            yield lease.affinity_until


def _may_win(round_: Round, group: GroupState, priority: int, user_group: int) -> bool:
    before = goes_before_all(round_, group, priority, user_group)
    if before is not None:
        return before
    holders = (
        round_.snapshot.group_of(lease)
        for lease in round_.snapshot.leases.values()
        if lease.contestable
    )
    return any(
        holder is not group
        and (holder.fact.priority, holder.fact.user_group) == (priority, user_group)
        for holder in holders
    )


def _failures(round_: Round, waiting: Sequence[GroupState]) -> Iterator[float]:
    for host in round_.snapshot.hosts.values():
        if any(one.fact.members >> host.ordinal & 1 for one in waiting):
            yield from (failure.blocks_until for failure in host.fact.failures)


def _moves(round_: Round, waiting: Sequence[GroupState]) -> Iterator[float]:
    limit = round_.policy.moves_per_hour
    for number, host in round_.snapshot.hosts.items():
        moves = round_.moment.moves(host)
        if len(moves) >= limit and any(_can_use(round_, one, number) for one in waiting):
            yield moves[-limit] + HOUR


def _starved(round_: Round) -> Iterator[float]:
    after = round_.policy.starve_after_seconds
    for group in round_.snapshot.groups.values():
        since = group.work.hostless_since
        if after is not None and since is not None and round_.missing(group) > 0:
            yield since + after
