"""The sets that make a decision quick: it decides the same as one that asks about each host and lease."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitosis.scheduling.decide import decide
from mitosis.scheduling.policy import Order, Policy, Preemption
from tests.support.examples import examples
from tests.support.plain_decision import plainly_decided
from tests.support.random_fleets import contested_fleets, exclusive_fleets
from tests.support.scheduling import NOW, Fleet

EXAMPLES = settings(max_examples=examples(60), deadline=None, suppress_health_check=[*HealthCheck])
RULES = st.just(Policy())
OTHER_POLICIES = st.builds(
    Policy,
    order=st.sampled_from(Order),
    preemption=st.sampled_from(Preemption),
    starve_after_seconds=st.sampled_from([None, 86_400.0]),
    actions_per_round=st.sampled_from([2, 1_000]),
)


@pytest.mark.spec("C-31", "C-35")
@EXAMPLES
@given(contested_fleets() | exclusive_fleets(RULES) | exclusive_fleets(OTHER_POLICIES))
def test_it_decides_what_a_decision_without_any_set_decides(fleet: Fleet) -> None:
    assert list(decide(fleet.snapshot, NOW)) == list(plainly_decided(fleet.snapshot, NOW))
