"""What becomes of the starts of a schedule that wait, by their overlap policies."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.overlap import Overlap
from mitosis.store.schedules.deciding import NOT_ENDED, REPLACED, REPLACES, Waiting, decide

NIGHT = datetime(2026, 11, 28, tzinfo=UTC)
SKIP, ONE, ALL = Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL
CANCEL, TERMINATE, ALLOW = Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER, Overlap.ALLOW_ALL


def waiting(policies: Sequence[Overlap]) -> list[Waiting]:
    return [
        Waiting(id=number, nominal_time=NIGHT + timedelta(hours=number), overlap=one)
        for number, one in enumerate(policies)
    ]


@pytest.mark.parametrize(
    ("policies", "active", "start", "skipped", "replacing"),
    [
        ([], False, None, {}, None),
        ([SKIP, SKIP], False, 0, {}, None),
        ([SKIP, SKIP], True, None, {0: NOT_ENDED, 1: NOT_ENDED}, None),
        ([ALL, ALL], False, 0, {}, None),
        ([ALL, ALL], True, None, {}, None),
        ([ONE, ONE, ONE], False, 0, {}, None),
        ([ONE, ONE, ONE], True, None, {0: REPLACED, 1: REPLACED}, None),
        ([CANCEL], True, None, {}, 0),
        ([CANCEL, TERMINATE], True, None, {0: REPLACED}, 1),
        ([ALL, CANCEL], False, 1, {}, None),
        ([ALL, SKIP, CANCEL, CANCEL], False, 3, {2: REPLACED}, None),
        ([SKIP, ALLOW], True, 1, {}, None),
    ],
)
def test_a_policy_decides_what_starts_waits_gives_way_or_is_left_out(
    policies: list[Overlap],
    active: bool,
    start: int | None,
    skipped: dict[int, str],
    replacing: int | None,
) -> None:
    found = decide(waiting(policies), active=active)
    assert (found.start and found.start.id) == start
    assert {one.id: reason for one, reason in found.skipped} == skipped
    assert (found.replacing and found.replacing.id) == replacing


@given(st.lists(st.sampled_from(Overlap), max_size=8), st.booleans())
def test_every_start_is_carried_out_once_and_no_run_overlaps_that_must_not(
    policies: list[Overlap], active: bool
) -> None:
    """Runs end at once when nothing else follows: then a start that waits comes to its turn."""
    left = {one.id: one for one in waiting(policies)}
    ran: set[int] = set()
    for _ in range(3 * len(policies) + 2):
        found = decide(list(left.values()), active=active)
        for one, _reason in found.skipped:
            assert one.overlap in {SKIP, ONE, *REPLACES}, "no other policy leaves out a time"
            del left[one.id]
        if found.start is None:
            active = False
            continue
        assert found.start.overlap is ALLOW or not active
        active = active or found.start.overlap is not ALLOW
        del left[found.start.id]
        ran.add(found.start.id)
    assert not left
    kept = {n for n, one in enumerate(policies) if one in {ALL, ALLOW}}
    assert kept <= ran
