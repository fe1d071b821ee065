"""Counts what happens in a simulation, and samples how many hosts are kept from work that waits."""

from collections import Counter
from dataclasses import dataclass, field

from mitosis.scheduling.actions import EndReason
from mitosis.scheduling.simulation.entities import Run, SimGroup, SimHost


@dataclass(slots=True)
class Accounts:
    """Sums over the whole simulation."""

    hosts: dict[int, SimHost] = field(default_factory=dict)
    groups: dict[int, SimGroup] = field(default_factory=dict)
    open: dict[int, SimGroup] = field(default_factory=dict)
    """Those that have not settled, perhaps with some that have."""
    worked_seconds: float = 0.0
    """Host time with tasks: an idle worker of a host with w workers counts 1/w of its time as not worked."""
    setup_seconds: float = 0.0
    teardown_seconds: float = 0.0
    drain_seconds: float = 0.0
    """Host time of idle workers whose lease has ended, until the last task there has ended."""
    leased_seconds: float = 0.0
    setups: int = 0
    offers: int = 0
    returns: int = 0
    """Offers to a host that still had the environment."""
    renewals: int = 0
    ends: Counter[EndReason] = field(default_factory=Counter)
    rounds: int = 0
    decisions: int = 0
    """A round that ends leases decides again."""
    decide_seconds: float = 0.0
    """Wall time: to read the clock of the CPU takes as long as a decision on some machines."""
    longest_decide_seconds: float = 0.0
    waits: list[tuple[int, float]] = field(default_factory=list)
    """(priority, seconds from the first ready task to the first host) of each task group."""
    turnarounds: list[tuple[int, float]] = field(default_factory=list)
    """(priority, seconds from creation to the end) of each task group that has ended."""
    longest_leaseless: float = 0.0
    """Longest time for which one task group had ready tasks and no host."""
    sampled_hosts: int = 0
    """Hosts times samples."""
    idle_while_waiting: int = 0
    """Hosts without a task, in a sample, that some ready task could use."""
    past_threshold: int = 0
    """Those of them that a task group below its useful size could be given now."""
    jain: list[float] = field(default_factory=list)
    """Fairness between user groups with ready tasks of priority 0, in each sample: 1 is equal shares."""

    def offered(self, group: SimGroup, host: SimHost, freed: bool, now: float) -> None:
        """Count an offer."""
        self.offers += 1
        self.returns += group.number in host.warm
        if group.first_offer_at is None and group.first_ready_at is not None:
            group.first_offer_at = now
            self.waits.append((group.record.priority, now - group.first_ready_at))
        self.end_leaseless(group, now)

    def end_leaseless(self, group: SimGroup, now: float) -> None:
        """Count a time without any host that is over."""
        if group.leaseless_since is not None:
            self.longest_leaseless = max(self.longest_leaseless, now - group.leaseless_since)

    def set_up(self, seconds: float) -> None:
        """Count a setup."""
        self.setups += 1
        self.setup_seconds += seconds

    def drained(self, run: Run, now: float) -> None:
        """Count what the drain of a lease cost."""
        if run.is_prepared:
            self.drain_seconds += sum(now - since for since in run.drain_from) / run.workers

    def settled(self, group: SimGroup) -> None:
        """Count a task group that has ended."""
        if group.settled_at is not None:
            seconds = group.settled_at - group.record.at
            self.turnarounds.append((group.record.priority, seconds))
