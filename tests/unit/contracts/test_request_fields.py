"""The fields of the requests of an agent: those that not every API knows are sent only while listed."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from pydantic import BaseModel

from mitosis.contracts import agent_http, wire
from mitosis.contracts.request_fields import (
    BODIES,
    FIRST,
    IN_LISTS,
    accepted_fields,
    common_fields,
    encoded,
)


class Held(wire.Held, kw_only=True):
    """As a later version may have it."""

    keys: list[int] = msgspec.field(default_factory=list)


class Renewal(wire.Renewal, kw_only=True):
    progress: dict[str, float] = msgspec.field(default_factory=dict)


class HookReport(agent_http.HookReport):
    memory_bytes: int = 0


class EnvironmentChange(agent_http.EnvironmentChange):
    stage: str | None = None
    hook: HookReport | None = None


class ReturnTasks(wire.Request):
    """A body that the first version does not have at all."""

    epoch: int = 0


RENEWAL = Renewal(
    incarnation=3, progress={"7": 0.5}, held=Held(acked_seq=1, task_ids=[7], keys=[2])
)
HOOK = HookReport.model_validate(
    {"state": "running", "started_at": "2026-01-01T00:00:00Z", "memory_bytes": 5}
)
CHANGE = EnvironmentChange(event="cleaned", stage="s", hook=HOOK)


def sent(body: Struct | BaseModel, listed: dict[str, list[str]]) -> Any:
    return json.loads(encoded(body, listed))


def test_what_is_not_listed_is_left_out_also_inside_of_fields() -> None:
    plain = {"incarnation": 3, "held": {"acked_seq": 1, "task_ids": [7]}}
    assert sent(RENEWAL, {}) == plain
    assert sent(RENEWAL, {"Renewal": ["incarnation"], "Other": ["progress"]}) == plain
    assert sent(RENEWAL, {"Renewal": ["progress"]}) == plain | {"progress": {"7": 0.5}}
    keys = plain | {"held": {"acked_seq": 1, "task_ids": [7], "keys": [2]}}
    assert sent(RENEWAL, {"Held": ["keys"]}) == keys


def test_bodies_of_pydantic_follow_the_same_rule() -> None:
    hook = {"state": "running", "started_at": "2026-01-01T00:00:00Z"}
    assert sent(CHANGE, {}) == {"event": "cleaned", "hook": hook}
    assert sent(CHANGE, {"EnvironmentChange": ["stage"], "HookReport": ["memory_bytes"]}) == {
        "event": "cleaned",
        "stage": "s",
        "hook": hook | {"memory_bytes": 5},
    }


def test_what_is_sent_without_a_list_is_what_it_was() -> None:
    assert sent(ReturnTasks(epoch=4), {}) == {"epoch": 4}
    claim = wire.ClaimTasks(epoch=1, claim_seq=1, acked_seq=0, max_tasks=5)
    assert encoded(claim, {}) == msgspec.json.encode(claim)


def test_every_api_accepts_what_the_first_one_did() -> None:
    accepted = accepted_fields()
    assert set(accepted) == set(FIRST)
    for name, fields in FIRST.items():
        assert set(fields) <= set(accepted[name]), name


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_later_field_can_be_left_out(
    body: type[Struct] | type[BaseModel],
) -> None:
    """It has a default; and bodies that are sent many at a time have no later field."""
    later = set(accepted_fields()[body.__name__]) - set(FIRST[body.__name__])
    assert not later or body.__name__ not in IN_LISTS
    if issubclass(body, BaseModel):
        needed = {name for name, info in body.model_fields.items() if info.is_required()}
    else:
        needed = {info.name for info in msgspec.structs.fields(body) if info.required}
    assert not later & needed


def test_common_is_what_each_accepts() -> None:
    mine = {"Held": ["acked_seq", "task_ids", "keys"], "Followed": ["epoch"]}
    assert common_fields([mine, mine])["Held"] == ["acked_seq", "task_ids", "keys"]
    assert common_fields([mine, {"Held": ["keys", "acked_seq"]}])["Held"] == ["acked_seq", "keys"]
    assert common_fields([mine, {}])["Held"] == ["acked_seq", "task_ids"], "it lists nothing"
    assert common_fields([{}])["Held"] == list(FIRST["Held"])
