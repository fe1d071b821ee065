"""The longest integer: what one part of the system lets in, every reader can read."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.json_text import unfit
from mitosis.contracts.json_integers import LONGEST_TEXT, is_too_long
from mitosis.store.tasks.readable import UNREADABLE, readable


@given(
    digits=st.integers(4297, 4300),
    sign=st.sampled_from([1, -1]),
    last=st.integers(0, 9),
)
@example(digits=4300, sign=-1, last=0)
@example(digits=4299, sign=-1, last=9)
@example(digits=4300, sign=1, last=9)
def test_all_parts_draw_the_same_line(digits: int, sign: int, last: int) -> None:
    value = sign * (10 ** (digits - 1) + last)
    text = json.dumps({"result": value})
    shown = readable(text, "detail")
    if is_too_long(value):
        assert f"result has {LONGEST_TEXT}" in shown[UNREADABLE]["why"]
        assert unfit(text.encode()) is not None
        with pytest.raises(msgspec.DecodeError, match="out of range"):
            msgspec.json.decode(text)
    else:
        assert shown == {"result": value} == msgspec.json.decode(text)
        assert unfit(text.encode()) is None


def test_the_line_is_that_of_positive_and_negative_numbers() -> None:
    assert not is_too_long(10**4300 - 1)
    assert is_too_long(10**4300)
    assert not is_too_long(1 - 10**4299)
    assert is_too_long(-(10**4299))
