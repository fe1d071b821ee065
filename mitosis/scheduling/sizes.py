"""How many leases a task group can use (protocol P9, last item)."""

from dataclasses import dataclass

from mitosis.scheduling.facts import Progress, Work
from mitosis.scheduling.policy import Policy


@dataclass(slots=True)
class Held:
    """The leases of one task group, counted."""

    live: int = 0
    """OFFERED or ACTIVE."""
    coming: int = 0
    """Of them, those that will claim what is ready: STARTING or with ROOM."""
    full: int = 0
    """Of them, those that work and claim nothing before a task ends."""
    ending: int = 0
    """ENDING: no capacity, but not more than ``max_managers`` together with the live ones."""
    promised: int = 0
    """Hosts on the way: leases of others that are ended for this one, and hosts freed for it."""

    def count(self, progress: Progress, by: int) -> None:
        """Add a live lease (1) or take it away (-1)."""
        self.live += by
        if progress in (Progress.STARTING, Progress.ROOM):
            self.coming += by
        elif progress is Progress.FULL:
            self.full += by

    @property
    def has_host(self) -> bool:
        """Whether it has a lease or a host on the way."""
        return self.live > 0 or self.promised > 0


def tasks_per_lease(workers: int, policy: Policy) -> int:
    """Return for how many ready tasks a task group can use one lease."""
    return policy.tasks_per_worker * workers


def is_measured(work: Work, policy: Policy) -> bool:
    """Return whether enough tasks have ended for their mean duration to limit the number of leases."""
    return work.tasks_measured >= policy.measured_tasks


def work_seconds(work: Work, workers: int) -> float:
    """Return how long one host would take for what is to be done."""
    return work.to_do * work.task_seconds / workers


def switch_seconds(work: Work, policy: Policy) -> float:
    """Return how much work a lease must have to pay for its setup and teardown."""
    return max(work.setup_seconds + work.teardown_seconds, policy.least_switch_seconds)


def useful_leases(work: Work, workers: int, full: int, policy: Policy) -> int:
    """Return how many leases have something to do; those that are stuck do not count.

    Leases that work are full and count beside what is ready. The sum is limited to as many leases as the
    work pays for: its duration on one host, divided by setup and teardown.
    """
    if work.ready <= 0:
        return 0
    useful = full + -(-work.ready // tasks_per_lease(workers, policy))
    if is_measured(work, policy):
        useful = min(useful, int(work_seconds(work, workers) / switch_seconds(work, policy)))
    return max(useful, 1)


def missing_leases(work: Work, workers: int, most: int | None, held: Held, policy: Policy) -> int:
    """Return how many leases to add to those it has and those on the way; zero or less: none."""
    useful = useful_leases(work, workers, held.full, policy) - held.coming - held.full
    if most is not None:
        useful = min(useful, most - held.live - held.ending)
    return useful - held.promised
