from typing import Any

import pytest

from mitosis.jobs.canonical import canonical_json, digest
from mitosis.jobs.reading import definition_of

SMALL: dict[str, Any] = {"name": "j", "steps": {"a": {"command": ["x"]}}}


def test_what_is_written_as_its_default_changes_no_digest() -> None:
    step = {
        "command": ["x"],
        "priority": 0,
        "group": "main",
        "retry": {"max_attempts": 1},
        "after": [],
    }
    assert digest(definition_of(SMALL | {"steps": {"a": step}})) == digest(definition_of(SMALL))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "k"},
        {"steps": {"b": {"command": ["x"]}}},
        {"steps": {"a": {"command": ["x", ""]}}},
        {"steps": {"a": {"command": ["x"], "count": 1}}},
        {"timeout": 1},
        {"parameters": {"p": {}}},
    ],
)
def test_any_change_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest(definition_of(SMALL | change)) != digest(definition_of(SMALL))


def test_a_digest_stays_what_it_was() -> None:
    """Stored versions are compared by it, so a default or a form that changes would make new versions."""
    assert canonical_json(definition_of(SMALL)) == '{"name":"j","steps":{"a":{"command":["x"]}}}'
    assert digest(definition_of(SMALL)).startswith("ac31e1617b7bf269")
