"""Any two definitions differ exactly where their digests do."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.jobs.canonical import digest
from mitosis.jobs.difference import changes_between
from mitosis.jobs.reading import definition_of
from tests.support.examples import examples
from tests.support.random_jobs import jobs, shuffled


@settings(max_examples=examples(12), deadline=None)
@given(jobs(), jobs(), st.randoms())
def test_there_is_a_change_exactly_where_the_digests_differ(
    one: dict[str, Any], other: dict[str, Any], random: Any
) -> None:
    before, after = definition_of(one), definition_of(other)
    assert changes_between(before, definition_of(shuffled(one, random))) == []
    assert bool(changes_between(before, after)) == (digest(before) != digest(after))
