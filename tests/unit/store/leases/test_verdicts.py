"""Who is to blame when tasks fail on a host: each phase, each fact that ends it."""

from dataclasses import replace
from typing import Any

import pytest

from mitosis.store.leases.verdicts import (
    SUSPECTED_BY_TRIALS,
    Phase,
    Suspect,
    Verdict,
    judge,
    with_trials,
)

FACTS: dict[str, Any] = {
    "manager": 1,
    "name": "host-1",
    "phase": Phase.WATCHED,
    "failures": 1,
    "tasks": (7,),
    "same_process": True,
    "left_seconds": 30.0,
    "doubted": (7,),
    "succeeded_elsewhere": 0,
    "failed_elsewhere": 0,
    "trying": 1,
    "has_more": True,
    "others": True,
    "away_seconds": None,
}
ALONE = {"others": False}
SUSPECTED = {"phase": Phase.SUSPECTED, "failures": 5}


def verdict(goes_on: bool = True, **facts: Any) -> Verdict:
    return judge(Suspect(**{**FACTS, **facts}), goes_on=goes_on)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, Verdict.WAIT),
        ({"failures": 4}, Verdict.WAIT),
        ({"failures": 5}, Verdict.SUSPECT),
        ({"failures": 5, "has_more": False}, Verdict.SUSPECT),
        ({"doubted": (3, 4, 5, 6, 7), "has_more": False}, Verdict.SUSPECT),
        ({"doubted": (3, 4, 5, 6), "has_more": False}, Verdict.FAIL),
        ({"others": False}, Verdict.FAIL),
        ({"others": False, "failures": 50}, Verdict.FAIL),
        ({**ALONE, "away_seconds": 179.0}, Verdict.WAIT),
        ({**ALONE, "away_seconds": 179.0, "failures": 5}, Verdict.SUSPECT),
        ({**ALONE, "away_seconds": 179.0, "has_more": False}, Verdict.FAIL),
        ({**ALONE, "away_seconds": 180.0, "failures": 50}, Verdict.FAIL),
        ({"has_more": False}, Verdict.FAIL),
        ({"has_more": False, "may_get_more": True}, Verdict.WAIT),
        ({"left_seconds": 0.0}, Verdict.FAIL),
        ({"left_seconds": None}, Verdict.WAIT),
        (SUSPECTED, Verdict.WAIT),
        ({**SUSPECTED, "succeeded_elsewhere": 1}, Verdict.WAIT),
        ({**SUSPECTED, "succeeded_elsewhere": 2}, Verdict.QUARANTINE),
        ({**SUSPECTED, "succeeded_elsewhere": 2, "others": False}, Verdict.QUARANTINE),
        ({**SUSPECTED, "succeeded_elsewhere": 1, "failed_elsewhere": 2}, Verdict.WAIT),
        ({**SUSPECTED, "failed_elsewhere": 1}, Verdict.WAIT),
        ({**SUSPECTED, "failed_elsewhere": 2}, Verdict.EXCUSE),
        ({**SUSPECTED, "trying": 0}, Verdict.TRY),
        ({**SUSPECTED, "trying": 0, "succeeded_elsewhere": 1, "failed_elsewhere": 2}, Verdict.TRY),
        ({**SUSPECTED, "trying": 0, "doubted": ()}, Verdict.FORGET),
        ({**SUSPECTED, "trying": 0, "others": False}, Verdict.EXCUSE),
        ({**SUSPECTED, "others": False}, Verdict.EXCUSE),
        ({**SUSPECTED, **ALONE, "away_seconds": 179.0}, Verdict.WAIT),
        ({**SUSPECTED, **ALONE, "away_seconds": 179.0, "trying": 0}, Verdict.TRY),
        ({**SUSPECTED, **ALONE, "away_seconds": 179.0, "left_seconds": 0.0}, Verdict.WAIT),
        ({**SUSPECTED, **ALONE, "serving": True}, Verdict.WAIT),
        ({**SUSPECTED, "left_seconds": -1.0, "serving": True}, Verdict.WAIT),
        ({**SUSPECTED, "failed_elsewhere": 2, "serving": True}, Verdict.EXCUSE),
        ({**SUSPECTED, **ALONE, "away_seconds": 180.0}, Verdict.EXCUSE),
        ({**SUSPECTED, "left_seconds": -1.0}, Verdict.EXCUSE),
        ({"phase": Phase.EXCUSED, "failures": 50}, Verdict.FAIL),
        ({"phase": Phase.EXCUSED, "left_seconds": 0.0}, Verdict.FORGET),
        ({"phase": Phase.EXCUSED, "serving": True}, Verdict.FORGET),
        ({"phase": Phase.EXCUSED, "serving": True, "failed_elsewhere": 2}, Verdict.FAIL),
        (
            {
                "phase": Phase.EXCUSED,
                "serving": True,
                "failed_elsewhere": 2,
                "succeeded_elsewhere": 1,
            },
            Verdict.FORGET,
        ),
        ({"phase": Phase.CLEARED}, Verdict.FORGET),
        ({"phase": Phase.QUARANTINED}, Verdict.RELEASE),
        ({"phase": Phase.QUARANTINED, "others": False}, Verdict.FORGET),
        ({"phase": Phase.QUARANTINED, **ALONE, "away_seconds": 3599.0}, Verdict.RELEASE),
        ({"phase": Phase.QUARANTINED, **ALONE, "away_seconds": 3600.0}, Verdict.FORGET),
        ({"phase": Phase.QUARANTINED, "left_seconds": -1.0}, Verdict.RELEASE),
    ],
)
def test_the_next_step(facts: dict[str, Any], expected: Verdict) -> None:
    assert verdict(**facts) is expected


@pytest.mark.parametrize("phase", Phase)
def test_nothing_stays_doubted_in_a_group_that_ends(phase: Phase) -> None:
    assert verdict(goes_on=False, phase=phase, failures=9) is Verdict.FORGET


def test_how_many_tasks_make_a_host_suspected_is_a_setting() -> None:
    suspect = Suspect(**{**FACTS, "failures": 2})
    assert judge(suspect, goes_on=True, quarantine_after=2) is Verdict.SUSPECT


@pytest.mark.parametrize(
    ("suspected", "doubted", "expected"),
    [
        (1, (7,), Verdict.SUSPECT),
        (2, (7,), Verdict.SUSPECT),
        (
            SUSPECTED_BY_TRIALS,
            (7,),
            Verdict.WAIT,
        ),  # else a wrong task would go through a whole fleet
        (1, (8,), Verdict.WAIT),
        (0, (7,), Verdict.WAIT),
    ],
)
def test_a_host_on_which_a_trial_for_another_fails_is_suspected_too(
    suspected: int, doubted: tuple[int, ...], expected: Verdict
) -> None:
    others = [Suspect(**{**FACTS, **SUSPECTED, "manager": 2 + n}) for n in range(suspected)]
    mine = Suspect(**{**FACTS, "tasks": (), "doubted": doubted})
    *_, found = with_trials([*others, mine])
    assert judge(found, goes_on=True) is expected
    assert judge(replace(found, others=False), goes_on=True) is Verdict.FAIL
