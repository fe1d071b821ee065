"""What one simulation came to, or the mean of several, as figures that can be compared."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mitosis.scheduling.actions import EndReason
from mitosis.scheduling.policy import HOUR, MINUTE
from mitosis.scheduling.simulation.accounts import Accounts
from mitosis.scheduling.simulation.workload import Workload

DAY_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long task groups of one priority waited for their first host."""

    priority: int
    groups: float
    p50_minutes: float
    p95_minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Figures of one policy. Percentages are of the time of all hosts."""

    hosts: float
    days: float
    worked_percent: float
    setup_hours: float
    teardown_hours: float
    switch_percent: float
    """Setup and teardown."""
    drain_hours: float
    drain_percent: float
    """Idle workers of leases that have ended while other tasks still run there."""
    setups_per_host_day: float
    hours_per_setup: float
    """Stickiness: host time with tasks for each setup."""
    moves_idle: float
    """Leases ended for another task group when they were idle."""
    moves_busy: float
    """Leases ended for another task group that goes first."""
    idle_hours_while_waiting: float
    """Time of hosts without a task that some ready task could use."""
    idle_percent_while_waiting: float
    past_threshold_percent: float
    """The part of it that the rules do not allow: free or idle past the threshold, and wanted."""
    jain: float
    """Fairness between user groups that wait with priority 0; 1 is equal shares."""
    turnaround_hours: float
    """Median time from creation to the end."""
    ended_groups: float
    longest_hostless_hours: float
    waits: Sequence[Wait]
    decide_ms: float
    """Wall time of the decisions of a round, mean."""
    longest_decide_ms: float
    rounds: float
    decisions: float
    offers: float

    def figures(self) -> Mapping[str, object]:
        """Return all figures by name."""
        return asdict(self)


def result_of(workload: Workload, accounts: Accounts) -> Result:
    """Return the figures of one simulation."""
    hosts = len(workload.hosts)
    whole = max(workload.until * hosts, 1.0)
    switch = accounts.setup_seconds + accounts.teardown_seconds
    samples = max(accounts.sampled_hosts, 1)
    idle = accounts.idle_while_waiting / samples
    turnarounds = [seconds for _, seconds in accounts.turnarounds]
    rounds = max(accounts.rounds, 1)
    return Result(
        hosts=hosts,
        days=workload.until / HOUR / DAY_HOURS,
        worked_percent=100 * accounts.worked_seconds / whole,
        setup_hours=accounts.setup_seconds / HOUR,
        teardown_hours=accounts.teardown_seconds / HOUR,
        switch_percent=100 * switch / whole,
        drain_hours=accounts.drain_seconds / HOUR,
        drain_percent=100 * accounts.drain_seconds / whole,
        setups_per_host_day=accounts.setups / (whole / HOUR / DAY_HOURS),
        hours_per_setup=accounts.worked_seconds / HOUR / max(accounts.setups, 1),
        moves_idle=accounts.ends[EndReason.IDLE],
        moves_busy=accounts.ends[EndReason.AFFINITY],
        idle_hours_while_waiting=idle * whole / HOUR,
        idle_percent_while_waiting=100 * idle,
        past_threshold_percent=100 * accounts.past_threshold / samples,
        jain=_mean(accounts.jain, 1.0),
        turnaround_hours=quantile(turnarounds, 0.5) / HOUR,
        ended_groups=len(turnarounds),
        longest_hostless_hours=accounts.longest_leaseless / HOUR,
        waits=_waits(accounts.waits),
        decide_ms=1_000 * accounts.decide_seconds / rounds,
        longest_decide_ms=1_000 * accounts.longest_decide_seconds,
        rounds=accounts.rounds,
        decisions=accounts.decisions,
        offers=accounts.offers,
    )


def mean_of(results: Sequence[Result]) -> Result:
    """Return the mean of each figure over simulations of the same kind."""
    if len(results) == 1:
        return results[0]
    priorities = sorted({wait.priority for result in results for wait in result.waits})
    waits = [
        _mean_wait(priority, [w for r in results for w in r.waits if w.priority == priority])
        for priority in priorities
    ]
    figures = {
        name: statistics.fmean(getattr(result, name) for result in results)
        for name in Result.__dataclass_fields__
        if name != "waits"
    }
    return Result(waits=waits, **figures)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share of them does not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _waits(waits: Sequence[tuple[int, float]]) -> Sequence[Wait]:
    found = []
    for priority in sorted({priority for priority, _ in waits}):
        seconds = [waited for of, waited in waits if of == priority]
        found.append(
            Wait(
                priority=priority,
                groups=len(seconds),
                p50_minutes=quantile(seconds, 0.5) / MINUTE,
                p95_minutes=quantile(seconds, 0.95) / MINUTE,
            )
        )
    return found


def _mean_wait(priority: int, waits: Sequence[Wait]) -> Wait:
    return Wait(
        priority=priority,
        groups=_mean([wait.groups for wait in waits], 0.0),
        p50_minutes=_mean([wait.p50_minutes for wait in waits], 0.0),
        p95_minutes=_mean([wait.p95_minutes for wait in waits], 0.0),
    )


def _mean(values: Sequence[float], none: float) -> float:
    return statistics.fmean(values) if values else none
