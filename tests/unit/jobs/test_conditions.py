from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.jobs.conditions import holds, parse_condition, references_of
from mitosis.jobs.references import Reference
from tests.support.examples import examples

VALUES: dict[str, Any] = {
    "params.publish": True,
    "params.name": "a b",
    "params.level": 3,
    "results.my-step.rows": 0,
    "results.none": None,
}


def value_of(reference: Reference) -> Any:
    return VALUES[str(reference)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("params.publish", True),
        ("not params.publish", False),
        ("params.level >= 3 and params.level < 4", True),
        ("results.my-step.rows > 0 or params.name == 'a b'", True),
        ("results.my-step.rows > 0 or params.name == 'a' or false", False),
        ("(params.publish or false) and not (params.level == 1e0)", True),
        ('params.name in ["x", "a b"]', True),
        ("params.level not in [1, -3, 3.0]", False),
        ("results.none == null", True),
        ("params.publish == 1", False),
        ("params.publish != 1", True),
        ('"a" in params.name', True),
        ('params.name == "or"', False),
        ("true or params.missing", True),
    ],
)
def test_a_condition_holds(text: str, expected: bool) -> None:
    assert holds(parse_condition(text), value_of) is expected


BOOLEANS = st.recursive(
    st.sampled_from(["true", "false"]),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not {one}"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
        inner.map(lambda one: f"({one})"),
    ),
    max_leaves=12,
)


@settings(max_examples=examples(20), deadline=None)
@given(BOOLEANS)
def test_and_or_not_bind_as_in_python(text: str) -> None:
    expected = eval(text, {"true": True, "false": False})  # noqa: S307 - of these words only
    assert holds(parse_condition(text), value_of) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "params.a ==",
        "params.a == == 1",
        "(params.a",
        "params.a)",
        "params.a b",
        "params.a + 1 > 0",
        "open('x')",
        "params.a in [params.b]",
        "1.2.3 == 1",
        "'open",
        "not",
        "a" * 2000,
        "(" * 400 + "true" + ")" * 400,
        "not " * 200 + "true",
        "[" * 900,
        "params.a in " + "[" * 400 + "]" * 400,
        r'params.a == "\q"',
        r'params["\q"] == 1',
        "params.a == 007",
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"condition|nested|write|as in JSON"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("params.level", "params.level is an integer, neither true nor false"),
        ("params.name < 3", "params.name < 3 compares a string with an integer"),
        ("1 in params.level", "which have no order"),
    ],
)
def test_values_that_cannot_be_compared_are_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        holds(parse_condition(text), value_of)


def test_all_references_are_found() -> None:
    condition = parse_condition("not params.a and (results.b == 1 or 2 < params.c.d[3])")
    assert [str(one) for one in references_of(condition)] == [
        "params.a",
        "results.b",
        "params.c.d[3]",
    ]
