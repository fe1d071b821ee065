"""References in any text: what is one, and what is none."""

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
