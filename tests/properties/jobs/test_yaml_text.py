"""YAML with places: the values of JSON, where they stand, and what is refused before it costs anything."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mitosis.jobs.yaml_text import YamlProblem, read_yaml, write_yaml
from tests.support.examples import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=20,
)


@settings(max_examples=examples(20), deadline=None)
@given(VALUES, st.booleans())
@example({"<<": "on", "no": "2026-11-28", "y": "010", "=": "1:30", "0E0": "1e5"}, False)
@example(["a b", "\u0085\u2028", "é", "\ufeff", "a\u2028b"], True)
def test_what_is_written_is_read_as_it_was(value: Any, flow: bool) -> None:
    assert read_yaml(write_yaml(value, flow=flow)).value == value


@settings(max_examples=examples(20), deadline=None)
@given(VALUES)
def test_json_is_yaml(value: Any) -> None:
    """Apart from letters that JSON may write as two escapes, and line breaks that it writes as they are."""
    text = json.dumps(value)
    if "\\ud" not in text:
        assert read_yaml(text).value == value


@settings(max_examples=examples(20), deadline=None)
@given(VALUES, st.booleans())
def test_every_value_has_its_place(value: Any, flow: bool) -> None:
    document = read_yaml(write_yaml(value, flow=flow))
    assert document.places.keys() == {path for path, _ in paths(value)}


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = [(path, value)]
    items: Any = value.items() if isinstance(value, dict) else []
    items = enumerate(value) if isinstance(value, list) else items
    for step, item in items:
        found += paths(item, (*path, step))
    return found


@settings(max_examples=examples(20), deadline=None)
@given(st.text("ab:-[]{}&*!|>'\"#%?, \n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(YamlProblem):  # anything else is a fault
        read_yaml(text)
