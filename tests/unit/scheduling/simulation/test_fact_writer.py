"""What changes between two rounds is put at once before the next one: a decision sees all of it."""

from collections.abc import Sequence
from typing import Any

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import Action
from mitosis.scheduling.decide import decide
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.entities import Run, SimHost
from mitosis.scheduling.simulation.simulator import Simulator
from mitosis.scheduling.simulation.synthetic import Mix, mixed
from mitosis.scheduling.snapshot import Snapshot

SMALL = Mix(hosts=10, days=1, load=1.1, seed=3)


def truth_of(host: SimHost) -> tuple[Any, ...]:
    failed = sorted(host.failures)
    return host.warm, host.unclean, host.in_contact, host.draining, failed, host.freed_for


def facts_of(snapshot: Snapshot, host: SimHost) -> tuple[Any, ...]:
    fact = snapshot.hosts[host.number].fact
    failed = sorted(failure.group for failure in fact.failures)
    flags = fact.in_contact, fact.draining
    return set(fact.warm), set(fact.unclean), *flags, failed, list(fact.freed_for)


def lease_of(run: Run) -> tuple[Any, ...]:
    progress = None if run.state is LeaseState.ENDING else run.progress
    times = run.affinity_until, run.idle_since, run.ending_since
    return run.group.number, run.host.number, run.state, progress, run.renewed, run.for_group, times


def leases_in(snapshot: Snapshot) -> dict[int, tuple[Any, ...]]:
    return {
        one.number: (
            *(one.group, one.host, one.state),
            None if one.state is LeaseState.ENDING else one.progress,
            *(one.renewed, one.for_group),
            (one.affinity_until, one.idle_since, one.ending_since),
        )
        for one in snapshot.leases.values()
    }


def test_each_decision_sees_the_hosts_and_leases_as_they_are() -> None:
    most_leases = 0

    def compared(snapshot: Snapshot, now: float) -> Sequence[Action]:
        for host in simulator.accounts.hosts.values():
            assert facts_of(snapshot, host) == truth_of(host)
        runs = simulator.leases.runs
        assert leases_in(snapshot) == {number: lease_of(run) for number, run in runs.items()}
        nonlocal most_leases
        most_leases = max(most_leases, len(runs))
        return decide(snapshot, now)

    simulator = Simulator(mixed(SMALL), Policy(), decision=compared)
    simulator.run()
    assert most_leases > SMALL.hosts // 2
