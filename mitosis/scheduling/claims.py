"""Whether a waiting task group may take the host of a lease now, and if not, why and until when.

The contest and `explain` ask the same function, so they cannot differ.
"""

from dataclasses import dataclass
from enum import StrEnum

from mitosis.scheduling.actions import EndReason
from mitosis.scheduling.costs import drain_seconds, idle_threshold
from mitosis.scheduling.due_times import ROUNDING_SECONDS
from mitosis.scheduling.facts import FOREVER, Lease
from mitosis.scheduling.policy import HOUR, Order, Preemption
from mitosis.scheduling.round import Round
from mitosis.scheduling.states import GroupState


class ObjectionKind(StrEnum):
    """What protects a lease from a waiting task group."""

    OWN = "own"
    """The task group holds it itself."""
    ENDING = "ending"
    """It ends already."""
    STARTING = "starting"
    """It is offered, or in its setup."""
    MOVES = "moves"
    """The host has been moved as often as allowed in an hour (C-36)."""
    IDLE = "idle"
    """It is idle, but not for long enough (C-35)."""
    AFFINITY = "affinity"
    """The waiting task group goes first, but the affinity of the lease is not over (C-31)."""
    RANK = "rank"
    """It has work, and the waiting task group does not go first."""


@dataclass(frozen=True, slots=True)
class Objection:
    """What protects a lease."""

    kind: ObjectionKind
    until: float = FOREVER
    """When the clock alone ends the protection. ``FOREVER``: never."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of a waiting task group to the host of a lease."""

    reason: EndReason
    since: float
    """When the lease became idle, or its affinity ended."""
    threshold_seconds: float | None = None
    """How long it had to be idle."""


def claim(round_: Round, group: GroupState, lease: Lease) -> Claim | Objection:
    """Return what a waiting task group can do about a lease, by the rules C-31, C-35 and C-36."""
    holder = round_.snapshot.group_of(lease)
    if holder is group:
        return Objection(ObjectionKind.OWN)
    if not lease.is_live or lease.number in round_.ended:
        return Objection(ObjectionKind.ENDING)
    if not lease.contestable:
        return Objection(ObjectionKind.STARTING)
    right = _by_idleness(round_, group, lease)
    if isinstance(right, Claim):
        return right
    other = _by_rank(round_, group, lease)
    if isinstance(other, Claim) or right is None or other.until < right.until:
        return other
    return right


def _by_idleness(round_: Round, group: GroupState, lease: Lease) -> Claim | Objection | None:
    """Return what idleness says: an idle host is at its end of work, which waits for no limit (C-36)."""
    if lease.idle_since is None:
        return None
    threshold = threshold_seconds(round_, group, lease)
    if round_.now + ROUNDING_SECONDS < lease.idle_since + threshold:
        return Objection(ObjectionKind.IDLE, lease.idle_since + threshold)
    return Claim(EndReason.IDLE, lease.idle_since, threshold)


def _by_rank(round_: Round, group: GroupState, lease: Lease) -> Claim | Objection:
    holder = round_.snapshot.group_of(lease)
    if not goes_before(round_, group, holder):
        return Objection(ObjectionKind.RANK)
    host = round_.snapshot.hosts[lease.host]
    if round_.moment.moved >> host.ordinal & 1:
        moves = round_.moment.moves(host)
        return Objection(ObjectionKind.MOVES, moves[-round_.policy.moves_per_hour] + HOUR)
    if affinity_is_over(round_, group, lease):
        return Claim(EndReason.AFFINITY, min(lease.affinity_until, round_.now))
    return Objection(ObjectionKind.AFFINITY, lease.affinity_until)


def threshold_seconds(round_: Round, group: GroupState, lease: Lease) -> float:
    """Return how long the lease must be idle before the waiting task group may take its host."""
    holder = round_.snapshot.group_of(lease)
    settings = round_.policy.settings_of(holder.fact.leases)
    return idle_threshold(holder.work, group.work, settings)


def affinity_is_over(round_: Round, group: GroupState, lease: Lease) -> bool:
    """Return whether the lease is past its affinity for a task group that goes first.

    A renewed lease stays contestable for a task group without any host.
    """
    if round_.policy.preemption is Preemption.ALWAYS:
        return True
    over = lease.affinity_until <= round_.now + ROUNDING_SECONDS
    return over or (lease.renewed and not round_.leases(group))


def goes_before(round_: Round, group: GroupState, holder: GroupState) -> bool:
    """Return whether a waiting task group goes before one that holds a lease (C-31).

    It has the higher priority; or the same, and its user group holds fewer leases by the gap, or none. Inside
    one user group the leases of the task groups are compared instead.
    """
    before = goes_before_all(round_, group, holder.fact.priority, holder.fact.user_group)
    if before is None:
        return _is_short(*compared_shares(round_, group, holder), round_.policy.share_gap)
    return before


def goes_before_all(
    round_: Round, group: GroupState, priority: int, user_group: int
) -> bool | None:
    """Return whether a waiting task group goes before all that hold leases with this priority and user group.

    None: it depends on the leases of each.
    """
    mine = round_.priority(group), group.fact.user_group
    return ranks_before(round_, mine, (priority, user_group))


def ranks_before(round_: Round, mine: tuple[float, int], theirs: tuple[int, int]) -> bool | None:
    """Return whether task groups that wait go before holders; both by their priority and user group.

    None: it depends on the leases of each.
    """
    policy = round_.policy
    if mine[0] < theirs[0] or policy.preemption is Preemption.NEVER or policy.order is Order.AGE:
        return False
    if mine[0] > theirs[0]:
        return True
    if policy.order is not Order.SHARE:
        return False
    if mine[1] == theirs[1]:
        return None
    return _is_short(round_.share(mine[1]), round_.share(theirs[1]), policy.share_gap)


def compared_shares(round_: Round, group: GroupState, holder: GroupState) -> tuple[int, int]:
    """Return the numbers of leases that decide between a waiting task group and a holder."""
    mine, theirs = group.fact.user_group, holder.fact.user_group
    if mine == theirs:
        return round_.leases(group), round_.leases(holder)
    return round_.share(mine), round_.share(theirs)


def _is_short(mine: int, theirs: int, gap: int) -> bool:
    return theirs - mine >= gap or (mine <= 0 and theirs >= 1)


def move_seconds(round_: Round, group: GroupState, lease: Lease) -> float:
    """Return the expected host time that it costs to give the host of a lease to a task group."""
    holder = round_.snapshot.group_of(lease)
    ordinal = round_.snapshot.ordinal(lease.host)
    warm = round_.snapshot.sets.get("warm", group.fact.number) >> ordinal & 1
    setup = 0.0 if warm else group.work.setup_seconds
    drain = 0.0 if lease.idle_since is not None else drain_seconds(holder.work, holder.fact.workers)
    return holder.work.teardown_seconds + setup + drain
