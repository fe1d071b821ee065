import sys

import pytest

from mitosis.jobs.references import Reference, parse_reference, parts_of


@pytest.mark.parametrize(
    "text",
    [
        "{{ params.date | upper }}",
        "{{ params.date() }}",
        "{{ params['date'] }}",
        "{{ 1 + 1 }}",
        "{{ }}",
        "{{ os.environ }}",
        "{{ params.a }} {{ params.b",
        "{{ params..a }}",
        "{{ params." + "a" * 600 + " }}",
    ],
)
def test_what_is_no_reference_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \{\{ params.NAME \}\}"):
        parts_of(text)


def test_an_escape_that_json_does_not_know_is_refused_with_its_text() -> None:
    for text in (r'{{ "\q" }}', r'{{ params["\q"] }}'):
        with pytest.raises(ValueError, match=r'"\\\\q".* is no text as in JSON'):
            parts_of(text)


def test_long_texts_are_not_kept() -> None:
    plain, reference = "x" * 100_000, " " * 100_000 + "item"
    before = [sys.getrefcount(text) for text in (plain, reference)]
    assert (parts_of(plain), parse_reference(reference)) == ((plain,), Reference("item"))
    assert [sys.getrefcount(text) for text in (plain, reference)] == before


def test_a_single_brace_is_plain_text() -> None:
    assert parts_of("{{{ item }}}") == ("{", Reference("item"), "}")
    assert parts_of("awk '{print $1}' }} ${HOME}") == ("awk '{print $1}' }} ${HOME}",)
