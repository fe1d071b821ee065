"""The indexes of a snapshot depend on its facts alone, whatever the changes were that led to them."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.scheduling.decide import decide
from mitosis.scheduling.facts import Capacity, Failure, Freed, Lease, Work
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.states import Profile
from tests.support.examples import examples
from tests.support.random_fleets import GROUP_FACTS, GROUPS, HOST_FACTS, LEASE_FACTS, WORK
from tests.support.scheduling import NOW, OTHERS, Fleet, host

FAILED = Failure(
    group=1,
    group_name="g1",
    kind=HostFailureKind.UNREACHABLE,
    reason="exit code 3",
    next_at=NOW + 60,
)


def indexes(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that a snapshot derives from its facts."""
    derived = {
        name: value
        for name, value in vars(snapshot).items()
        if name
        not in (
            *("_ordinals", "numbers", "times", "promises", "waiting"),
            *("groups", "hosts", "sets", "profiles"),
        )
    }
    derived["promises"] = snapshot.promises.hosts, snapshot.promises._counts
    derived["times"] = {n: t for n, t in vars(snapshot.times).items() if n != "_of"}
    derived["sets"] = snapshot.sets._sets
    derived["hosts"] = {n: (s.fact, s.free, s.leases) for n, s in snapshot.hosts.items()}
    derived["groups"] = {
        n: (s.fact, fields(s.profile), s.work, s.held, s.leases, s.missing, s.key)
        for n, s in snapshot.groups.items()
    }
    waiting = snapshot.waiting
    derived["waiting"] = waiting.setups, waiting._with_setup
    derived["kinds"] = {
        (priority, fields(profile)): (
            kind.members,
            {of: (bucket.line, bucket.setups) for of, bucket in kind.buckets.items()},
        )
        for (priority, profile), kind in waiting.kinds.items()
    }
    return derived


def fields(profile: Profile) -> tuple[object, ...]:
    return profile.user_group, profile.demand, profile.workers, profile.binding


def rebuilt(snapshot: Snapshot) -> Snapshot:
    """A snapshot that is made of the facts of another one alone."""
    return Snapshot.of(
        snapshot.policy,
        (state.fact for state in snapshot.hosts.values()),
        ((state.fact, state.work) for state in snapshot.groups.values()),
        snapshot.leases.values(),
        snapshot.numbers,
    )


class Changes(RuleBasedStateMachine):
    """Puts and drops in any order; hosts come in the order of their numbers, as in PostgreSQL."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.snapshot = self.fleet.snapshot
        self.copied_from: list[tuple[Snapshot, Snapshot]] = []

    @rule()
    def go_on_with_a_copy(self) -> None:
        self.copied_from.append((self.snapshot, rebuilt(self.snapshot)))
        self.snapshot = self.fleet.snapshot = self.snapshot.copy()

    @rule()
    @precondition(lambda self: len(self.snapshot.numbers) < 5)
    def add_host(self) -> None:
        self.snapshot.put_host(host(len(self.snapshot.numbers) + 1))

    @rule(data=st.data(), loading=st.booleans())
    @precondition(lambda self: self.snapshot.hosts)
    def change_host(self, data: st.DataObject, loading: bool) -> None:
        state = self.snapshot.hosts[data.draw(st.sampled_from(sorted(self.snapshot.hosts)))]
        name = data.draw(st.sampled_from(sorted(HOST_FACTS)))
        fact = replace(state.fact, **{name: data.draw(HOST_FACTS[name])})
        with self.snapshot.loading() if loading else nullcontext():
            self.snapshot.put_host(fact)

    @rule(data=st.data())
    @precondition(lambda self: any(not s.leases for s in self.snapshot.hosts.values()))
    def drop_host(self, data: st.DataObject) -> None:
        unused = sorted(n for n, s in self.snapshot.hosts.items() if not s.leases)
        self.snapshot.drop_host(data.draw(st.sampled_from(unused)))

    @rule(number=GROUPS, facts=st.fixed_dictionaries(GROUP_FACTS), work=st.none() | WORK)
    def put_group(self, number: int, facts: dict[str, Any], work: Work | None) -> None:
        self.fleet.put_group(number, facts, work)

    @rule(data=st.data(), work=WORK)
    @precondition(lambda self: self.snapshot.groups)
    def put_work(self, data: st.DataObject, work: Work) -> None:
        self.snapshot.put_work(data.draw(st.sampled_from(sorted(self.snapshot.groups))), work)

    @rule(data=st.data())
    @precondition(lambda self: any(not s.leases for s in self.snapshot.groups.values()))
    def drop_group(self, data: st.DataObject) -> None:
        unused = sorted(n for n, s in self.snapshot.groups.items() if not s.leases)
        self.snapshot.drop_group(data.draw(st.sampled_from(unused)))

    @rule(data=st.data(), facts=st.fixed_dictionaries(LEASE_FACTS))
    @precondition(lambda self: self.snapshot.hosts and self.snapshot.groups)
    def add_lease(self, data: st.DataObject, facts: dict[str, Any]) -> None:
        group = data.draw(st.sampled_from(sorted(self.snapshot.groups)))
        on = data.draw(st.sampled_from(sorted(self.snapshot.hosts)))
        self.fleet.lease(group, on, **facts)

    @rule(data=st.data(), facts=st.fixed_dictionaries(LEASE_FACTS))
    @precondition(lambda self: self.snapshot.leases)
    def change_lease(self, data: st.DataObject, facts: dict[str, Any]) -> None:
        number = data.draw(st.sampled_from(sorted(self.snapshot.leases)))
        self.fleet.change_lease(number, **facts)

    @rule(data=st.data())
    @precondition(lambda self: self.snapshot.leases)
    def drop_lease(self, data: st.DataObject) -> None:
        self.snapshot.drop_lease(data.draw(st.sampled_from(sorted(self.snapshot.leases))))

    @invariant()
    def it_equals_a_snapshot_built_from_scratch(self) -> None:
        assert indexes(rebuilt(self.snapshot)) == indexes(self.snapshot)

    @invariant()
    def what_was_copied_stays_as_it_was(self) -> None:
        for snapshot, then in self.copied_from:
            assert indexes(snapshot) == indexes(then)
            assert [one.bucket for one in snapshot.groups.values() if one.bucket] == [
                snapshot.waiting.bucket_of(one) for one in snapshot.groups.values() if one.bucket
            ]

    @invariant()
    def a_decision_leaves_it_as_it_was_and_is_the_same_again(self) -> None:
        before = indexes(rebuilt(self.snapshot))
        decided = decide(self.snapshot, NOW)
        assert decide(self.snapshot, NOW) == decided
        assert decide(rebuilt(self.snapshot), NOW) == decided
        assert indexes(self.snapshot) == before


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=examples(8),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[*HealthCheck],
)


def test_a_host_or_a_group_with_leases_cannot_be_dropped() -> None:
    fleet = Fleet(1)
    fleet.group(1)
    fleet.lease(1, 1)
    with pytest.raises(ValueError, match="host h1 has leases"):
        fleet.snapshot.drop_host(1)
    with pytest.raises(ValueError, match="task group g1 has leases"):
        fleet.snapshot.drop_group(1)


def test_a_lease_keeps_its_host_and_its_task_group() -> None:
    fleet = Fleet(2)
    fleet.group(1)
    number = fleet.lease(1, 1)
    with pytest.raises(ValueError, match="keeps its host"):
        fleet.snapshot.put_lease(Lease(number=number, group=1, host=2))


def test_a_host_keeps_its_bit_after_it_was_dropped() -> None:
    fleet = Fleet(2)
    fleet.group(1, on=[2])
    fleet.snapshot.drop_host(2)
    assert fleet.offers() == []
    fleet.host(3)
    fleet.host(2)
    assert fleet.offers() == [(1, 2)]


@pytest.mark.parametrize(
    "facts",
    [
        {"user_group": OTHERS},
        {"priority": 1},
        {"members": 1},
        {"demand": Capacity(cores=2)},
        {"leases": LeaseTerms(idle_threshold=60.0)},
    ],
    ids=lambda facts: next(iter(facts)),
)
def test_a_changed_task_group_moves_its_leases(facts: dict[str, Any]) -> None:
    fleet = Fleet(3)
    fleet.group(1)
    fleet.lease(1, 1, affinity_until=NOW - 1.0)
    fleet.lease(1, 2, renewed=True)
    fleet.idle(1, 3, 100.0)
    fleet.change_group(1, **facts)
    assert indexes(rebuilt(fleet.snapshot)) == indexes(fleet.snapshot)


def test_what_is_done_to_a_copy_is_not_done_to_what_it_was_copied_from() -> None:
    fleet = Fleet(4)
    for number in (1, 2, 3, 4):
        fleet.group(number, ready=9)
    fleet.lease(2, 1)
    fleet.idle(3, 2, 400.0)
    fleet.ending(3, 3, for_group=1)
    snapshot, then = fleet.snapshot, rebuilt(fleet.snapshot)
    copied = fleet.snapshot = snapshot.copy()
    assert indexes(copied) == indexes(then)
    fleet.lease(1, 4)
    fleet.host(4, draining=True, failures=(FAILED,), freed_for=(Freed(1, NOW),))
    fleet.change_group(1, priority=7, max_managers=1)
    fleet.work(3, ready=0, hostless_since=NOW)
    for number in [one for one, lease in copied.leases.items() if lease.group == 2]:
        copied.drop_lease(number)
    copied.drop_group(4)
    assert indexes(copied) == indexes(rebuilt(copied))
    assert indexes(snapshot) == indexes(then)
