"""The checks of the simulator find what they are for: hosts kept from work, and offers that may not be."""

from typing import Any

import pytest

from mitosis.scheduling.actions import Action, EndLease, Offer, Rank
from mitosis.scheduling.simulation.conservation import Forbidden
from mitosis.scheduling.simulation.simulator import Decision
from tests.support.simulation import DAY, HOUR, MINUTE, Scene, without

RANK = Rank(0, 0, 0, 0.0, 1)


def always(*actions: Action) -> Decision:
    """A decision that is always the same."""
    return lambda snapshot, now: actions


def two_groups() -> Scene:
    """One host that becomes idle under the first task group, while the second waits."""
    scene = Scene(1, DAY)
    scene.group("first", setup_seconds=MINUTE)
    scene.tasks("first", 4, 10 * MINUTE)
    scene.group("second", at=30 * MINUTE, team=2)
    scene.tasks("second", 4, 10 * MINUTE, at=30 * MINUTE)
    return scene


def test_a_decision_that_works_keeps_no_host_from_work() -> None:
    scene = two_groups()
    scene.run()
    assert scene.found("second").ended == 4


def test_a_free_host_that_is_not_offered_is_found() -> None:
    with pytest.raises(AssertionError, match="group='first', hosts=1, missing=2"):
        two_groups().run(decision=without(Offer))


def test_an_idle_host_that_is_kept_past_its_threshold_is_found() -> None:
    with pytest.raises(AssertionError, match="group='second', hosts=1"):
        two_groups().run(decision=without(EndLease))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hosts": ["h1"]}, "is no member"),
        ({"user_group": "others"}, "has no role"),
        ({"max_managers": 0}, "is beyond max_managers"),
    ],
)
def test_an_offer_that_may_not_be_is_refused(fields: dict[str, Any], words: str) -> None:
    scene = Scene(2, HOUR)
    scene.group("only", **fields)
    scene.tasks("only", 1, MINUTE)
    with pytest.raises(Forbidden, match=f"h2 for only: {words}"):
        scene.run(decision=always(Offer(1, 2, RANK)))


def test_a_second_lease_on_a_host_is_refused() -> None:
    scene = Scene(1, HOUR)
    scene.group("only")
    scene.tasks("only", 100, MINUTE)
    with pytest.raises(Forbidden, match="h1 for only: has a lease"):
        scene.run(decision=always(Offer(1, 1, RANK), Offer(1, 1, RANK)))
