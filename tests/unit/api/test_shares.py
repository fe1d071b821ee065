"""Shares of an amount: one holder cannot take all, what is given back is free again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.shares import Holder, Share
from api.streams import MAX_STREAMS


def greedy(share: Share, holder: Holder) -> int:
    """How many single takes succeed."""
    taken = 0
    while share.take(holder):
        taken += 1
    return taken


def test_one_holder_gets_half_and_each_later_one_half_of_the_rest() -> None:
    share = Share(MAX_STREAMS)
    assert [greedy(share, ("user", name)) for name in "abcde"] == [200, 100, 50, 25, 12]


def test_a_holder_that_takes_all_it_can_leaves_room_for_another() -> None:
    share = Share(256)
    assert share.take(("user", "a"), 128)
    assert not share.take(("user", "a"), 1)
    assert share.take(("manager", "a"), 64)


def test_what_is_given_back_is_free_for_all() -> None:
    share = Share(4)
    assert greedy(share, ("user", "a")) == 2
    share.give_back(("user", "a"), 2)
    assert (share.used, share.held(("user", "a"))) == (0, 0)
    assert greedy(share, ("user", "b")) == 2


def test_what_was_never_taken_cannot_be_given_back() -> None:
    with pytest.raises(KeyError):
        Share(4).give_back(("user", "a"))


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans()), max_size=60),
)
def test_sums_agree_and_no_holder_has_more_than_it_leaves(
    most: int, steps: list[tuple[str, int, bool]]
) -> None:
    share, held = Share(most), dict.fromkeys("abc", 0)
    for name, size, takes in steps:
        if takes and share.take(("user", name), size):
            held[name] += size
            assert held[name] <= most - sum(held.values())
        elif not takes and 0 < size <= held[name]:
            share.give_back(("user", name), size)
            held[name] -= size
        assert share.used == sum(held.values()) <= most
        assert all(share.held(("user", name)) == held[name] for name in held)
