"""Checks of a simulation that do not use the decision: no host is kept from work, no offer is forbidden."""

from dataclasses import dataclass

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.costs import idle_threshold
from mitosis.scheduling.facts import FOREVER, Work
from mitosis.scheduling.host_sets import NONE, Hosts, ordinals
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.entities import Run, SimGroup, SimHost

ROUNDING = 0.001


class Forbidden(Exception):
    """An action that the state of the fleet does not allow."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Hosts that a task group should have been given."""

    at: float
    group: str
    hosts: Hosts
    missing: int
    """Leases that the task group can still use."""


def check_offer(group: SimGroup, host: SimHost) -> None:
    """Check that a host may be offered to a task group.

    Raises:
        Forbidden: it may not.
    """
    most = group.record.max_managers
    rules = {
        "has a lease": host.run is not None,
        "is being cleaned": bool(host.unclean),
        "is out of contact": not host.in_contact,
        "is draining": host.draining,
        "is no member": not group.members & host.bit,
        "has no role": group.user_group not in host.serves,
        "failed setup": group.number in host.failures,
        "is beyond max_managers": most is not None and len(group.runs) >= most,
        "is for a settled task group": group.is_settled,
    }
    broken = [words for words, holds in rules.items() if holds]
    if broken:
        raise Forbidden(f"{host.record.name} for {group.record.name}: {', '.join(broken)}")


class Conservation:
    """Finds hosts that a task group could use now, by the rules P9 and C-35 over the state of the fleet."""

    def __init__(
        self, policy: Policy, hosts: dict[int, SimHost], groups: dict[int, SimGroup]
    ) -> None:
        self._policy = policy
        self._hosts = hosts
        self._groups = groups

    def kept(self, now: float, waiting: set[SimGroup]) -> list[Kept]:
        """Return what the task groups that have ready tasks should have been given by now."""
        free, idle = self._unused(now)
        if not free and not idle:
            return []
        idle_hosts = sum(run.host.bit for run in idle.values())
        promised = self._promised(now)
        found = []
        for group in waiting:
            hosts = free & group.usable
            of_others = idle_hosts & group.usable
            if not hosts and not of_others:
                continue
            missing = self.missing(group, promised.get(group.number, 0))
            for ordinal in ordinals(of_others) if missing > 0 else ():
                if self._is_ripe(idle[ordinal], group, now):
                    hosts |= 1 << ordinal
            if hosts and missing > 0:
                found.append(Kept(now, group.record.name, hosts, missing))
        return found

    def _unused(self, now: float) -> tuple[Hosts, dict[int, Run]]:
        """Return the free hosts, and the leases that are idle for the least threshold and may be moved.

        The leases are found by the ordinals of their hosts.
        """
        free = NONE
        idle = dict[int, Run]()
        since = now - self._policy.leases.least_idle - ROUNDING
        for host in self._hosts.values():
            run = host.run
            if run is None:
                if host.is_free:
                    free |= host.bit
            elif run.idle_since is not None and run.idle_since < since and self._is_idle(run, now):
                idle[host.bit.bit_length() - 1] = run
        return free, idle

    def missing(self, group: SimGroup, promised: int) -> int:
        """Return how many leases a task group can still use (P9, last item)."""
        if group.ready <= 0 or group.is_settled:
            return 0
        live = [run for run in group.runs if run.state is not LeaseState.ENDING]
        stuck = sum(not run.host.in_contact for run in live)
        full = sum(
            run.host.in_contact and run.is_prepared and run.running >= run.workers for run in live
        )
        useful = full + self._for_ready(group)
        limit = self._paid_for(group)
        useful = max(1, useful if limit is None else min(useful, limit))
        missing = useful - (len(live) - stuck)
        if group.record.max_managers is not None:
            missing = min(missing, group.record.max_managers - len(group.runs))
        return missing - promised

    def _for_ready(self, group: SimGroup) -> int:
        per_lease = self._policy.tasks_per_worker * group.workers
        return (group.ready + per_lease - 1) // per_lease

    def _paid_for(self, group: SimGroup) -> int | None:
        """Return how many leases the ready work pays for; None: not enough is measured."""
        if group.ended < self._policy.measured_tasks:
            return None
        switch = sum(
            total / count
            for total, count in (
                (group.setup_seconds, group.setups),
                (group.teardown_seconds, group.teardowns),
            )
            if count
        )
        seconds = group.ready * group.mean_seconds / group.workers
        return int(seconds / max(switch, self._policy.least_switch_seconds))

    def _promised(self, now: float) -> dict[int, int]:
        """Return, by task group, the hosts on the way to it."""
        found: dict[int, int] = {}
        for host in self._hosts.values():
            run = host.run
            if host.freed_for:
                oldest = now - self._policy.freed_counts_seconds
                for freed in host.freed_for:
                    if freed.at > oldest:
                        found[freed.group] = found.get(freed.group, 0) + 1
            if run is None or run.for_group is None:
                continue
            if run.ending_since + self._policy.drain_counts_seconds > now:
                found[run.for_group] = found.get(run.for_group, 0) + 1
        return found

    def _is_idle(self, run: Run, now: float) -> bool:
        host = run.host
        usable = host.in_contact and not host.draining
        return usable and run.state is not LeaseState.ENDING and run.idle_since is not None

    def _is_ripe(self, run: Run, group: SimGroup, now: float) -> bool:
        """Return whether a lease is idle for long enough for this task group."""
        since = run.idle_since if run.idle_since is not None else FOREVER
        return run.group is not group and since + self._threshold(run.group, group) < now - ROUNDING

    def _threshold(self, loser: SimGroup, winner: SimGroup) -> float:
        """Return how long a host of one task group is kept from another one (C-35)."""
        teardown = loser.teardown_seconds / loser.teardowns if loser.teardowns else 0.0
        setup = winner.setup_seconds / winner.setups if winner.setups else 0.0
        measured = Work(teardown_seconds=teardown), Work(setup_seconds=setup)
        return idle_threshold(*measured, self._policy.leases)
