"""Forecasts a task group that does not exist yet: what each host would do for it, when it begins and ends.

The same decision as in a round, over a copy of its snapshot. What comes after that decision is an estimate
from measured durations: other task groups may be created, and hosts be lost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from mitosis.scheduling.actions import EndLease, Offer, gains_of
from mitosis.scheduling.bands import AT_ONCE, Band
from mitosis.scheduling.claims import Objection, claim
from mitosis.scheduling.costs import drain_seconds
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.explain import LEFT_OVER, Step, chain
from mitosis.scheduling.facts import FOREVER, Group, Work
from mitosis.scheduling.predicates import Condition, conditions_for
from mitosis.scheduling.round import Round
from mitosis.scheduling.sizes import useful_leases
from mitosis.scheduling.smallest_change import Changes, smallest_change
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import GroupState, HostState

COULD_SERVE = frozenset({"busy", "rank", *LEFT_OVER})
"""The codes of hosts that could be given to the task group, were they free and needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """What is known about how long the parts of a task group take."""

    setup: Band
    teardown: Band
    task: Band | None
    """None: nothing is known."""


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """What one host would do for the task group."""

    host: int
    obstacle: Step | None
    """The first condition that does not hold; None: it would work for the task group."""
    free_in: Band | None
    """How long until it would be free: at once, when what runs there has ended, or when the clock says so.
    None: no time alone makes it free."""

    @property
    def may_serve(self) -> bool:
        """Whether it could be given to the task group, were it free and needed."""
        return self.obstacle is None or self.obstacle.code in COULD_SERVE


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForecast:
    """What would become of the task group."""

    hosts: Sequence[PlannedHost]
    gets: int
    """Hosts that it would be given at once."""
    useful: int
    """Hosts that it has work for."""
    begins: Band | None
    """Until its first task runs; None: no time is known."""
    ends: Band | None
    """Until its last task has ended."""
    host_time: Band | None
    """Of all its hosts together, setup and teardown included."""
    smallest: Changes | None
    """What would give it a host, if it gets none."""


def forecast_group(
    snapshot: Snapshot, now: float, group: Group, work: Work, durations: Durations
) -> GroupForecast:
    """Decide with one task group more. The snapshot stays as it is."""
    planned = snapshot.copy()
    planned.put_group(group, work)
    round_ = decided_round(planned, now)
    state = planned.groups[group.number]
    conditions = conditions_for(round_.moment, state)
    hosts = [planned.hosts[number] for number in sorted(planned.hosts)]
    gains = {gain.host: gain for gain in gains_of(round_.actions, group.number)}
    shown = [
        _given(round_, gains[host.fact.number])
        if host.fact.number in gains
        else _kept(round_, state, host, conditions)
        for host in hosts
    ]
    gets, useful = len(gains), useful_leases(work, group.workers, 0, planned.policy)
    begins = _begins(shown, durations.setup)
    return GroupForecast(
        hosts=shown,
        gets=gets,
        useful=useful,
        begins=begins,
        ends=_ends(begins, work, group.workers, (max(gets, 1), max(useful, 1)), durations.task),
        host_time=_host_time(work, group.workers, max(gets, 1), durations),
        smallest=None if gains else smallest_change(round_, state, conditions),
    )


def _given(round_: Round, gain: Offer | EndLease) -> PlannedHost:
    free_in = _drain(round_, gain.lease) if isinstance(gain, EndLease) else AT_ONCE
    return PlannedHost(gain.host, None, free_in)


def _kept(
    round_: Round, group: GroupState, host: HostState, conditions: Sequence[Condition]
) -> PlannedHost:
    obstacle = chain(round_, group, host, conditions).first_obstacle
    free_in = _freed_by_the_clock(round_, group, host, obstacle)
    return PlannedHost(host.fact.number, obstacle, free_in)


def _drain(round_: Round, number: int) -> Band:
    """Return how long the tasks go on that run under a lease that is ended."""
    lease = round_.snapshot.leases[number]
    holder = round_.snapshot.group_of(lease)
    if lease.idle_since is not None:
        return Band(0.0, holder.work.teardown_seconds, math.inf)
    if not holder.work.tasks_measured:
        return Band(0.0, None, math.inf)
    drain = holder.work.task_seconds + drain_seconds(holder.work, holder.fact.workers)
    return Band(0.0, drain, math.inf)


def _freed_by_the_clock(
    round_: Round, group: GroupState, host: HostState, obstacle: Step | None
) -> Band | None:
    """Return when the host could be taken from its leases, if nothing else is in the way."""
    leases = list(round_.snapshot.leases_on(host.ordinal))
    if obstacle is None or (obstacle.code in LEFT_OVER and not leases):
        return AT_ONCE
    if obstacle.code != "busy" or not leases:
        return None
    found = AT_ONCE
    for lease in leases:
        right = claim(round_, group, lease)
        until = right.until if isinstance(right, Objection) else round_.now
        if until >= FOREVER:
            return None
        waits = max(0.0, until - round_.now)
        one = Band(waits, waits, waits).plus(_drain(round_, lease.number))
        found = max(found, one, key=lambda band: band.least)
    return found


def _begins(hosts: Sequence[PlannedHost], setup: Band) -> Band | None:
    able = [host.free_in for host in hosts if host.free_in is not None and host.may_serve]
    if not able:
        return None
    return min(able, key=lambda band: (band.least, band.most)).plus(setup)


def _ends(
    begins: Band | None, work: Work, workers: int, hosts: tuple[int, int], task: Band | None
) -> Band | None:
    """Return when the last task ends: with the hosts that it gets, at best with all that it has work for."""
    if begins is None or task is None:
        return None
    gets, useful = hosts
    rounds, best = ceil(work.ready / (gets * workers)), ceil(work.ready / (useful * workers))
    return begins.plus(task.times(best, rounds, rounds))


def _host_time(work: Work, workers: int, hosts: int, durations: Durations) -> Band | None:
    if durations.task is None:
        return None
    switches = durations.setup.plus(durations.teardown).times(hosts, hosts, hosts)
    rounds = work.ready / workers
    return switches.plus(durations.task.times(rounds, rounds, rounds))
