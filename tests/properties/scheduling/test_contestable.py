"""The sets that make a decision quick: it decides the same as one that asks about each host and lease."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.decide import decide
from mitosis.scheduling.facts import Progress
from mitosis.scheduling.policy import Order, Policy, Preemption
from tests.support.carrying_out import carry_out, end_what_ends
from tests.support.examples import examples
from tests.support.plain_decision import plainly_decided
from tests.support.random_fleets import (
    USABLE_HOST,
    WAITING_GROUP,
    contested_fleets,
    exclusive_fleets,
)
from tests.support.scheduling import NOW, Fleet

EXAMPLES = settings(max_examples=examples(12), deadline=None, suppress_health_check=[*HealthCheck])
RULES = st.just(Policy())
OTHER_POLICIES = st.builds(
    Policy,
    order=st.sampled_from(Order),
    preemption=st.sampled_from(Preemption),
    starve_after_seconds=st.sampled_from([None, 86_400.0]),
    actions_per_round=st.sampled_from([2, 1_000]),
)

FLEETS = contested_fleets() | exclusive_fleets(RULES) | exclusive_fleets(OTHER_POLICIES)


@pytest.mark.spec("C-31", "C-35")
@EXAMPLES
@given(FLEETS)
def test_it_decides_what_a_decision_without_any_set_decides(fleet: Fleet) -> None:
    assert list(decide(fleet.snapshot, NOW)) == list(plainly_decided(fleet.snapshot, NOW))


CHANGED_HOST = st.fixed_dictionaries(
    {},
    optional={
        name: USABLE_HOST[name]
        for name in ("in_contact", "draining", "unclean", "failures", "warm", "serves", "moved_at")
    },
)
CHANGED_GROUP = st.fixed_dictionaries(
    {},
    optional={
        name: WAITING_GROUP[name] for name in ("priority", "members", "user_group", "goes_on")
    },
)
CHANGED_WORK = st.fixed_dictionaries(
    {},
    optional={
        "ready": st.sampled_from([0, 1, 4, 9]),
        "setup_seconds": st.sampled_from([0.0, 250.0, 300.0]),
    },
)
CHANGED_LEASE = st.sampled_from(
    [
        {"progress": Progress.ROOM, "idle_since": NOW - 100.0},
        {"progress": Progress.FULL, "idle_since": None},
        {"progress": Progress.FULL, "idle_since": None, "affinity_until": NOW},
    ]
)
CHANGES = st.tuples(
    st.sampled_from([0.0, 10.0, 250.0, 4_000.0]),
    st.booleans(),
    CHANGED_HOST,
    CHANGED_GROUP,
    CHANGED_WORK,
    CHANGED_LEASE,
    st.integers(0, 9),
)
"""Seconds that pass, whether ending leases end, and what changes: for one of each, by a number."""


@pytest.mark.spec("C-31", "C-35")
@EXAMPLES
@given(FLEETS, st.lists(CHANGES, min_size=2, max_size=5))
def test_it_decides_the_same_on_facts_that_were_kept_while_they_changed(
    fleet: Fleet, steps: list[tuple[Any, ...]]
) -> None:
    snapshot, now = fleet.snapshot, NOW
    for seconds, ends, host, group, work, lease, which in steps:
        actions = decide(snapshot, now)
        assert list(actions) == list(plainly_decided(snapshot, now))
        carry_out(snapshot, actions, now)
        if ends:
            end_what_ends(snapshot, now)
        now += seconds
        fleet.host(one_of(snapshot.hosts, which), **host)
        fleet.change_group(one_of(snapshot.groups, which), **group)
        fleet.work(one_of(snapshot.groups, which), **work)
        held = [one.number for one in snapshot.leases.values() if one.is_live]
        if held:
            fleet.change_lease(one_of(held, which), state=LeaseState.ACTIVE, **lease)
    assert list(decide(snapshot, now)) == list(plainly_decided(snapshot, now))


def one_of(numbers: Iterable[int], which: int) -> int:
    ordered = sorted(numbers)
    return ordered[which % len(ordered)]
