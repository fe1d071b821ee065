"""Values that some reader of JSON may not take: deep, odd, large; for tests that read them back."""

from itertools import cycle, islice
from typing import Any

from hypothesis import strategies as st


def nested(kinds: str, depth: int) -> Any:
    """Return a value nested ``depth`` deep: ``[{`` alternates lists and dicts."""
    value: Any = 1
    for kind in islice(cycle(kinds), depth):
        value = [value] if kind == "[" else {"k": value}
    return value


_texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    _texts,
    st.sampled_from(["[[[", '"]}', "\\u0000", "\\", "\U0001f600", "ä", "\u2028", ""]),
)


def values() -> st.SearchStrategy[Any]:
    """Return storable values of JSON, a few levels deep."""
    return st.recursive(
        _scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
        max_leaves=12,
    )


def odd_values() -> st.SearchStrategy[Any]:
    """Return values of which some cannot be stored: at any depth, with halves of characters, NaN, huge."""
    odd = st.sampled_from(
        [
            float("nan"),
            float("inf"),
            "\0",
            "a\0b",
            "\ud800",
            "\udfffx",
            10**4300,
            -(10**5000),
            {1: 1, "1": 2},
        ]
    )
    deep = st.builds(
        nested,
        st.sampled_from(["[", "{", "[{"]),
        st.one_of(
            st.sampled_from([1, 189, 190, 191, 199, 200, 254, 255, 300, 1000]),
            st.integers(150, 320),
        ),
    )
    return st.one_of(
        values(), deep, odd, st.lists(odd | values(), max_size=2), st.lists(deep, max_size=2)
    )
