"""The canonical form of any definition comes back from YAML and JSON; its digest is of the content."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.jobs.canonical import canonical_json, digest, plain_fields
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.loading import read_definition
from mitosis.jobs.reading import definition_of
from mitosis.jobs.yaml_text import write_yaml
from tests.support.examples import examples
from tests.support.random_jobs import jobs, shuffled


@settings(max_examples=examples(12), deadline=None)
@given(jobs(), st.booleans())
def test_a_definition_comes_back_from_yaml_and_from_json(
    fields: dict[str, Any], flow: bool
) -> None:
    made = definition_of(fields)
    text = canonical_json(made)
    assert definition_of(json.loads(text)) == made
    assert JobDefinition.model_validate_json(text) == made
    assert read_definition(write_yaml(plain_fields(made), flow=flow)) == made
    assert read_definition(write_yaml(fields, flow=flow)) == made
    assert canonical_json(definition_of(json.loads(text))) == text


@settings(max_examples=examples(8), deadline=None)
@given(jobs(), st.randoms())
def test_the_digest_does_not_depend_on_the_order_of_keys(
    fields: dict[str, Any], random: Any
) -> None:
    assert digest(definition_of(shuffled(fields, random))) == digest(definition_of(fields))
