"""What a decision returns: the actions, and why each was chosen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mitosis.scheduling.facts import FOREVER


class Rank(NamedTuple):
    """The place of a waiting task group in the line: the smaller is served first."""

    order: float
    """Minus the priority; less than all priorities for a task group that has starved."""
    share: int
    """Leases of its user group, with those on the way."""
    leases: int
    """Leases of the task group, with those on the way."""
    created_at: float
    number: int
    """Of the task group."""


class EndReason(StrEnum):
    """Why a lease is to end."""

    IDLE = "idle"
    """Idle past its threshold while another task group waits (C-03)."""
    AFFINITY = "affinity"
    """Its affinity is over and another task group goes first (C-31)."""
    MAX_MANAGERS = "max_managers"
    """The task group has more leases than it may have; this is one of the last that came."""
    DRAINING = "draining"
    """The host drains."""
    NOT_MEMBER = "not_member"
    """The host was removed from the task group, or lost its write role."""
    NO_WORK = "no_work"
    """Its affinity is over and the task group has no unfinished task (S002-173)."""

    @property
    def is_contested(self) -> bool:
        """Whether it counts against the moves of the host per hour (C-36)."""
        return self is EndReason.AFFINITY


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer the host to the task group."""

    group: int
    host: int
    rank: Rank
    """Of the task group when it took the host. It explains why another task group did not get it."""
    freed: bool = False
    """A lease was ended so that this task group gets the host."""


@dataclass(frozen=True, slots=True)
class EndLease:
    """End a lease: it claims nothing more."""

    lease: int
    host: int
    reason: EndReason
    ask_back_at: float
    """When its tasks that have not started are asked back. ``FOREVER``: never, the host finishes them.
    Running tasks always finish."""
    for_group: int | None = None
    """The task group that gets the host; it counts as its lease from now on."""
    rank: Rank | None = None
    """Of that task group."""
    since: float | None = None
    """When the lease became idle, or its affinity ended."""
    threshold_seconds: float | None = None
    """How long it had to be idle."""
    cost_seconds: float = 0.0
    """Expected host time that the move costs: teardown, setup and drain."""

    @property
    def asks_back(self) -> bool:
        """Whether there is a time at which tasks are asked back."""
        return self.ask_back_at < FOREVER


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew a lease whose affinity is over: the task group that holds it keeps the host."""

    lease: int
    until: float
    """The next ``affinity_until``."""


class WakeReason(StrEnum):
    """What the clock alone will change."""

    MORE = "more"
    """More actions are due than one decision returns."""
    IDLE = "idle"
    """A lease may have been idle for long enough."""
    AFFINITY = "affinity"
    """The affinity of a lease ends."""
    FAILURE = "failure"
    """A host that failed is tried again."""
    STARVED = "starved"
    """A task group has had no host for ``starve_after``."""
    MOVES = "moves"
    """A host may be moved again (C-36)."""
    ON_THE_WAY = "on_the_way"
    """A host that is being freed no longer counts for its task group."""
    DELAYED = "delayed"
    """A delayed attempt becomes ready."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Decide again at this time, without any new fact. The last action, if there is such a time."""

    at: float
    reason: WakeReason


Action = Offer | EndLease | Renew | Wake


def gains_of(actions: Iterable[Action], group: int) -> Sequence[Offer | EndLease]:
    """Return the actions that give hosts to a task group."""
    return [
        action
        for action in actions
        if (isinstance(action, Offer) and action.group == group)
        or (isinstance(action, EndLease) and action.for_group == group)
    ]
