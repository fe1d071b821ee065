"""The numbers of the scheduling rules (C-02, C-03, C-31, C-35, C-36, P9). Durations are seconds."""

from dataclasses import dataclass
from enum import StrEnum

from mitosis.contracts.lease_settings import (
    DEFAULT_TERMS,
    MOVES_PER_HOUR,
    STARVE_AFTER,
    LeaseTerms,
)

MINUTE = 60.0
HOUR = 3600.0


class Order(StrEnum):
    """Which of the waiting task groups is served first."""

    SHARE = "share"
    """Priority, leases of the user group, leases of the task group, age (C-31). The others are to compare."""
    PRIORITY = "priority"
    """Priority, then age."""
    AGE = "age"
    """Age alone."""


class Preemption(StrEnum):
    """When a lease that has work may be taken by a task group that goes first."""

    AT_AFFINITY = "at_affinity"
    """At ``affinity_until`` (C-31). The others are for comparison."""
    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one deployment."""

    leases: LeaseTerms = DEFAULT_TERMS
    """For task groups without settings of their own."""
    affinity_factor: float = 20.0
    """Affinity is this many times the cost of moving the host away, within its bounds."""
    share_gap: int = 2
    """With equal priority, a user group wins a host if it holds so many leases fewer, or none."""
    moves_per_hour: int = MOVES_PER_HOUR
    """Contested ends of leases of one host in any hour (C-36)."""
    starve_after_seconds: float | None = STARVE_AFTER.total_seconds()
    """A task group with claimable work and no host for so long goes before all. None: never."""
    tasks_per_worker: int = 2
    """A task group can use one more lease for so many ready tasks per worker (P9)."""
    measured_tasks: int = 5
    """So many tasks must have ended before their mean duration limits the number of leases (P9)."""
    least_switch_seconds: float = MINUTE
    """Setup and teardown count as at least this long when useful leases are counted (P9)."""
    drain_counts_seconds: float = 30 * MINUTE
    """A lease that is ended for a task group counts as one of its leases for so long."""
    freed_counts_seconds: float = 5 * MINUTE
    """A host that was freed for a task group, and is being cleaned, counts for it for so long."""
    suspect_after_seconds: float = 10.0
    """Silence after which a host is offered nothing; facts say who is in contact, this is for texts."""
    actions_per_round: int = 1_000
    """A decision returns at most so many offers, ends and renewals; the rest follows in the next one."""
    order: Order = Order.SHARE
    preemption: Preemption = Preemption.AT_AFFINITY

    def settings_of(self, own: LeaseTerms | None) -> LeaseTerms:
        """Return a task group's own settings, or those of the deployment."""
        return own or self.leases
