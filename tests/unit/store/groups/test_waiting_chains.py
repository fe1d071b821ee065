"""How often the smallest change is looked for on behalf of Temporal's details."""

from typing import Any, cast

from mitosis.store.groups.waiting_chains import LONGEST_PAUSE_SECONDS, SHARE, WaitingChains


def test_the_smallest_changes_take_a_share_of_the_time() -> None:
    chains = WaitingChains(cast("Any", None))
    assert [chains.turn(1000.0) for _ in range(3)] == [0.0] * 3, "nothing is known to take long"
    chains._takes = LONGEST_PAUSE_SECONDS / SHARE / 2
    pauses = [chains.turn(1000.0) for _ in range(5)]
    assert pauses == [0.0, LONGEST_PAUSE_SECONDS / 2, LONGEST_PAUSE_SECONDS, None, None]
    assert chains.turn(1000.0 + LONGEST_PAUSE_SECONDS) == LONGEST_PAUSE_SECONDS / 2
