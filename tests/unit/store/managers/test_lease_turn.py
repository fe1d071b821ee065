"""What the clock brings next for a lease."""

from typing import Any

import pytest

from mitosis.store.managers.lease_turn import lease_turn

FACTS: dict[str, Any] = {
    "group_name": "render",
    "next_group": None,
    "ask_back_in_seconds": None,
    "idle_in_seconds": None,
    "affinity_in_seconds": 3600.0,
    "leaves": False,
}


@pytest.mark.parametrize(
    ("facts", "what", "seconds", "text"),
    [
        ({}, "affinity", 3600.0, "the lease of render is renewed"),
        ({"idle_in_seconds": 100.0}, "idle", 100.0, "idle for long enough under render"),
        ({"idle_in_seconds": 9999.0}, "affinity", 3600.0, "goes first takes the host"),
        (
            {"ask_back_in_seconds": 300.0, "next_group": "urgent", "leaves": True},
            "ask_back",
            300.0,
            "asked back from render: the host goes to urgent",
        ),
    ],
)
def test_the_first_of_what_is_to_come(
    facts: dict[str, Any], what: str, seconds: float, text: str
) -> None:
    turn = lease_turn({**FACTS, **facts})
    assert turn is not None
    assert (turn.what, turn.in_seconds) == (what, seconds)
    assert text in turn.why


def test_a_drained_host_and_an_offer_have_nothing_to_come() -> None:
    assert lease_turn({**FACTS, "leaves": True}) is None
    assert lease_turn({**FACTS, "affinity_in_seconds": None}) is None
