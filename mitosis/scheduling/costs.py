"""What it costs to move a host from one task group to another, in seconds of host time (C-31, C-35)."""

import math

from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.scheduling.facts import Group, Work
from mitosis.scheduling.policy import Policy


def drain_seconds(work: Work, workers: int) -> float:
    """Return the expected host time lost until the longest of the running tasks ends.

    For exponential durations the longest of n ends about mean * ln(n) after the mean one.
    """
    return work.task_seconds * math.log(workers)


def affinity_seconds(group: Group, work: Work, policy: Policy) -> float:
    """Return how long a lease of this task group is safe from those that go first."""
    cost = work.setup_seconds + work.teardown_seconds + drain_seconds(work, group.workers)
    return policy.settings_of(group.leases).affinity(policy.affinity_factor * cost)


def idle_threshold(loser: Work, winner: Work, settings: LeaseTerms) -> float:
    """Return how long a lease must be idle before this other task group may take it.

    Args:
        loser: of the task group that holds the lease.
        winner: of the one that would get the host.
        settings: of the task group that holds the lease.
    """
    return settings.idle(loser.teardown_seconds + winner.setup_seconds)
