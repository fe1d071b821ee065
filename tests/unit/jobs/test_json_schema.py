"""The schema for editors has every field, in the forms that a user may write."""

import json
from collections.abc import Iterator
from typing import Any

from mitosis.jobs.definition import GroupSettings, JobDefinition, Parameter, Step
from mitosis.jobs.json_schema import definition_schema

SCHEMA = definition_schema()


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, dict | list):
            yield from parts(one)


def test_every_field_is_there_and_no_other_is_accepted() -> None:
    assert SCHEMA["properties"].keys() == JobDefinition.model_fields.keys()
    for model in (Step, Parameter, GroupSettings):
        assert SCHEMA["$defs"][model.__name__]["properties"].keys() == model.model_fields.keys()
        assert SCHEMA["$defs"][model.__name__]["additionalProperties"] is False


def test_every_reference_leads_to_a_definition() -> None:
    found = [part["$ref"] for part in parts(SCHEMA) if "$ref" in part]
    assert found
    assert all(one.removeprefix("#/$defs/") in SCHEMA["$defs"] for one in found)
    json.dumps(SCHEMA)


def test_the_short_forms_are_there() -> None:
    step = SCHEMA["$defs"]["Step"]["properties"]
    kinds = [one.get("type") for one in step["after"]["anyOf"]]
    assert kinds == ["string", "array", "object"]
    timeout = step["timeout"]["anyOf"][0]
    assert {one["type"] for one in timeout["anyOf"]} == {"number", "string"}
