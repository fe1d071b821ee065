"""What a task carries to a function is exactly what was given, or nothing is submitted."""

import json
from inspect import signature
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mitosis.client.arguments import json_arguments

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def function(first: Any, second: Any = 2, *, third: Any = 3) -> None: ...


def carried(*args: Any, of: Any = function, **kwargs: Any) -> Any:
    return json_arguments(of.__name__, signature(of), args, kwargs)


@given(JSON)
def test_every_json_value_arrives_as_it_is(value: Any) -> None:
    (got,) = json.loads(msgspec.json.encode(carried(value)))
    assert got == value
    assert type(got) is type(value)
