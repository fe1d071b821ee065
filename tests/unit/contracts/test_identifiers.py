"""No name, tag, label or host fact can control a terminal or change the direction of text beside it."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from mitosis.contracts.agent_http import Hello
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import RegisterManager, TagsBody, TaskGroupSpec, TaskGroupUpdate
from mitosis.contracts.manager_verbs import ManagerUpdate
from mitosis.contracts.task import submission
from mitosis.contracts.templates import SaveTemplate

CHARACTERS = ["\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800"]
HELLO = {
    "incarnation": 1,
    "machine_id": "m",
    "boot_id": "b",
    "host_name": "h",
    "cores": [0],
    "agent_version": "1",
}
NAMED: list[tuple[type[BaseModel], Mapping[str, Any], tuple[str, ...], tuple[str, ...]]] = [
    (TaskGroupSpec, {"name": "a"}, ("name", "group_name"), ("tags", "labels")),
    (TaskGroupUpdate, {}, (), ("tags", "labels")),
    (TagsBody, {"tags": []}, (), ("tags",)),
    (RegisterManager, {}, ("name",), ("tags", "labels")),
    (ManagerUpdate, {}, ("name",), ("tags", "labels")),
    (SaveTemplate, {"name": "a", "spec": {}}, ("name", "group_name"), ()),
    (Hello, HELLO, ("machine_id", "boot_id", "host_name", "agent_version"), ()),
]


@pytest.mark.parametrize("char", CHARACTERS, ids=ascii)
@pytest.mark.parametrize(("model", "rest", "texts", "lists"), NAMED)
def test_a_character_that_is_not_shown_is_refused_by_field(
    model: type[BaseModel],
    rest: Mapping[str, Any],
    texts: tuple[str, ...],
    lists: tuple[str, ...],
    char: str,
) -> None:
    for field in (*texts, *lists):
        right, wrong = "plain", f"a{char}b"
        made = [right] if field in lists else right
        model(**{**rest, field: made})
        with pytest.raises(InvalidRequest) as refused:
            model(**{**rest, field: [wrong] if field in lists else wrong})
        assert str(refused.value.facts["field"]).startswith(field)


@pytest.mark.parametrize("char", CHARACTERS[:-1], ids=ascii)
def test_labels_of_tasks_are_plain_too(char: str) -> None:
    assert submission({"command": ["x"], "labels": ["caf\xe9", "\u6f22"]}).labels
    with pytest.raises(InvalidRequest, match=rf"U\+{ord(char):04X}") as refused:
        submission({"command": ["x"], "labels": ["good", f"a{char}"]})
    assert refused.value.facts["field"] == "labels[1]"
