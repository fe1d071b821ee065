"""YAML with places: the values of JSON, where they stand, and what is refused before it costs anything."""

from typing import Any

import pytest

from mitosis.jobs.yaml_text import MAX_BYTES, MAX_DEPTH, YamlProblem, read_yaml


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


def test_a_key_that_is_given_twice_is_found() -> None:
    document = read_yaml("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    assert document.value == {"a": 1, "b": {"c": 1, "d": 2}}
    (problem,) = document.repeated
    assert (
        problem.text("job.yaml") == "job.yaml:5:3: b.c: is given twice, first in line 3; remove one"
    )
