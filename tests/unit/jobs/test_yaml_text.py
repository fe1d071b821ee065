"""YAML with places: the values of JSON, where they stand, and what is refused before it costs anything."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mitosis.jobs.yaml_text import MAX_BYTES, MAX_DEPTH, YamlProblem, read_yaml, write_yaml
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


def test_places_are_those_of_the_key_and_of_the_item() -> None:
    document = read_yaml("# a job\nname: x\nsteps:\n  a:\n    command: [one,\n      'two']\n")
    assert document.places == {
        (): (2, 1),
        ("name",): (2, 1),
        ("steps",): (3, 1),
        ("steps", "a"): (4, 3),
        ("steps", "a", "command"): (5, 5),
        ("steps", "a", "command", 0): (5, 15),
        ("steps", "a", "command", 1): (6, 7),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("2026-11-28", "2026-11-28"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("-0.5", -0.5),
        (".inf", ".inf"),
        ("~", None),
        ("TRUE", True),
        ("'true'", "true"),
        ("!!str 5", "5"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("&a [1, 2]", [1, 2]),
        ("[&a {x: 1}, *a, *a]", [{"x": 1}] * 3),
        ("\ufeff[1]", [1]),
    ],
)
def test_a_value_is_that_of_json(text: str, value: Any) -> None:
    assert read_yaml(text.encode()).value == value


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
DEEP = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        (b"", "is empty", 1),
        (b"# nothing\n", "is empty", 1),
        (b"a: [1\nb: 2\n", "is no YAML", 2),
        (b"a:\n\tb: 1\n", "is no YAML", 2),
        (b"a: 1\n\nb: '\x01'\n", "is no YAML", 3),
        (b"a: 1\nb: \xff\n", "byte 0xff is not UTF-8", 2),
        (b"a: 1\n---\nb: 2\n", "a second document", 2),
        (b"a: 1\nb: !!python/object/apply:os.system [ls]\n", "tag tag:yaml.org,2002:python", 2),
        (b"a: !!int '5'\n", "tag tag:yaml.org,2002:int", 1),
        (b"a: &x {b: 1}\nc:\n  <<: *x\n", "merge keys", 3),
        (b"a:\n  ? [1]\n  : 2\n", "a key must be plain text", 2),
        (b"a: *b\n", "has no anchor", 1),
        (b"a: &b [*b]\n", "within its own anchor", 1),
        (BOMB.encode(), "more than 200000 values", 6),
        (DEEP.encode(), f"deeper than {MAX_DEPTH} levels", 49),
        (b"[" * 100_000, "nesting depth|deeper than", 1),
        (b"- " * 60_000 + b"x", f"deeper than {MAX_DEPTH} levels", 1),
        (b"{a: " * 100_000, "nesting depth|deeper than", 1),
        (b"x" * (MAX_BYTES + 1), "a definition may have", 1),
    ],
)
def test_what_is_not_accepted_is_refused_with_its_line(text: bytes, why: str, line: int) -> None:
    with pytest.raises(YamlProblem, match=why) as caught:
        read_yaml(text)
    assert caught.value.problem.place is not None
    assert caught.value.problem.place[0] == line


@settings(max_examples=examples(20), deadline=None)
@given(st.text("ab:-[]{}&*!|>'\"#%?, \n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(YamlProblem):  # anything else is a fault
        read_yaml(text)


def test_a_key_that_is_given_twice_is_found() -> None:
    document = read_yaml("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    assert document.value == {"a": 1, "b": {"c": 1, "d": 2}}
    (problem,) = document.repeated
    assert (
        problem.text("job.yaml") == "job.yaml:5:3: b.c: is given twice, first in line 3; remove one"
    )
