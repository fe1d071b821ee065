"""Which reasons for the end of a lease PostgreSQL confirms: each with its facts, and none without them."""

from dataclasses import replace
from itertools import product

import pytest

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.lifecycle import LeaseState, TaskGroupState
from mitosis.store.managers.release_claims import LeaseFacts, confirms

WORKING = LeaseFacts(
    offered_seconds=1.0,
    silent_seconds=1.0,
    group_state=TaskGroupState.OPEN,
    holds_tasks=False,
    environment_is_gone=False,
)
ENDED = replace(WORKING, group_state=TaskGroupState.CANCELLED)
OLD = replace(WORKING, offered_seconds=10.0)
SILENT = replace(WORKING, silent_seconds=11.0)
FAILED = replace(WORKING, environment_is_gone=True)
TRUE = [
    (ReleaseReason.GROUP_ENDED, LeaseState.OFFERED, ENDED),
    (ReleaseReason.GROUP_ENDED, LeaseState.ENDING, ENDED),
    (ReleaseReason.MOVED, LeaseState.ENDING, WORKING),
    (ReleaseReason.UNREACHABLE, LeaseState.OFFERED, OLD),
    (ReleaseReason.UNREACHABLE, LeaseState.OFFERED, SILENT),
    (ReleaseReason.SETUP_FAILED, LeaseState.ACTIVE, FAILED),
    (ReleaseReason.SETUP_FAILED, LeaseState.ENDING, FAILED),
    (ReleaseReason.SETUP_LOST, LeaseState.ACTIVE, SILENT),
]


@pytest.mark.parametrize(("reason", "state", "facts"), TRUE)
def test_a_true_reason_is_confirmed(
    reason: ReleaseReason, state: LeaseState, facts: LeaseFacts
) -> None:
    assert confirms(facts, state, reason, 10.0)


def test_nothing_else_is() -> None:
    """Every reason in every state over a host that works, and over each single fact."""
    known = {(reason, state, facts) for reason, state, facts in TRUE}
    known |= {  # an ending lease without tasks is over, whatever else is true
        (ReleaseReason.MOVED, LeaseState.ENDING, facts)
        for facts in (WORKING, ENDED, OLD, SILENT, FAILED)
    }
    known.add((ReleaseReason.LOST, LeaseState.OFFERED, SILENT))
    live = (LeaseState.OFFERED, LeaseState.ACTIVE, LeaseState.ENDING)
    for reason, state, facts in product(ReleaseReason, live, (WORKING, ENDED, OLD, SILENT, FAILED)):
        confirmed = confirms(facts, state, reason, 10.0)
        assert confirmed == ((reason, state, facts) in known), (reason, state, facts)


@pytest.mark.parametrize(("reason", "state", "facts"), TRUE)
def test_no_lease_that_was_taken_ends_while_it_holds_tasks(
    reason: ReleaseReason, state: LeaseState, facts: LeaseFacts
) -> None:
    held = replace(facts, holds_tasks=True)
    if state is not LeaseState.OFFERED:
        assert not confirms(held, state, reason, 10.0)
