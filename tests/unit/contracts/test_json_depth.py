"""How deep JSON is: the fast search agrees with counting, whatever stands in texts."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.json_depth import MAX_DEPTH, READABLE_DEPTH, is_deeper
from tests.support.examples import examples
from tests.support.odd_values import nested, values


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@settings(max_examples=examples(12))
@given(values(), st.integers(0, 8), st.booleans(), st.sampled_from([None, 1]))
def test_the_search_agrees_with_counting(
    value: Any, limit: int, ascii_only: bool, indent: int | None
) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert is_deeper(raw, limit) == (depth(value) > limit)


def test_the_limit_is_exact_for_arrays_and_objects() -> None:
    for kind in ("[", "{", "[{"):
        assert not is_deeper(json.dumps(nested(kind, MAX_DEPTH)).encode())
        assert is_deeper(json.dumps(nested(kind, MAX_DEPTH + 1)).encode())


def test_brackets_in_texts_do_not_count() -> None:
    assert not is_deeper(json.dumps(["[" * 1000 + '\\"{' * 1000]).encode())


def test_an_answer_around_a_value_still_fits_the_weakest_reader() -> None:
    assert MAX_DEPTH + 6 < READABLE_DEPTH
