import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.jobs.references import ROOTS, Reference, parse_reference, parts_of
from tests.support.examples import examples

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,10}", fullmatch=True)
KEYS = st.text(max_size=10)
PATHS = st.lists(st.one_of(NAMES, KEYS, st.integers(0, 10**8)), max_size=5).map(tuple)
REFERENCES = st.builds(Reference, st.sampled_from(ROOTS), PATHS)


@settings(max_examples=examples(20), deadline=None)
@given(REFERENCES)
def test_a_reference_is_read_as_it_is_written(reference: Reference) -> None:
    assert parse_reference(str(reference)) == reference
    assert parse_reference(f"{{{{ {reference} }}}}") == reference


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.one_of(REFERENCES, st.text("ab {}\"'$;`\n", max_size=8)), max_size=6))
def test_a_text_has_the_parts_that_it_was_made_of(parts: list[str | Reference]) -> None:
    """Plain text may hold any characters: braces are written as a text within braces."""
    written = "".join(_written(part) for part in parts)
    read = parts_of(written)
    assert [p for p in read if isinstance(p, Reference)] == [
        p for p in parts if isinstance(p, Reference)
    ]
    assert "".join(map(str, read)) == "".join(map(str, parts))


def _written(part: str | Reference) -> str:
    if isinstance(part, Reference):
        return f"{{{{ {part} }}}}"
    quoted = part.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{{{ "{quoted}" }}}}'


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
