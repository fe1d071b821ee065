"""For any body with one broken place, the refusal names that place and what would be right there."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from api.bodies import decode
from api.errors import invalid_request
from mitosis.contracts.checked_model import refused
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import CancelBody, RegisterManager, RetryBody, TaskGroupSpec
from mitosis.contracts.mismatch import Path, find_mismatch, joined_path
from mitosis.contracts.service_tasks import ClaimNamedTasks, ReportNamedTasks
from mitosis.contracts.wire import (
    ClaimTasks,
    Followed,
    Renewal,
    ReportTasks,
    SubmitTasks,
    WriteOutput,
)
from mitosis.handlers import CheckedOptions

TASK = {
    "command": ["gzip", "-k"],
    "command_encoding": "text",
    "environment": {"A": "1", "B": "2"},
    "working_directory": "/tmp",
    "timeout_seconds": 1.5,
    "priority": 3,
    "dedup_key": "k",
    "labels": ["x", "y"],
    "retry": {"max_attempts": 2, "exit_codes": [1, 2], "delay_seconds": 0.5},
}
REPORT = {"task_id": 1, "attempt": 1, "outcome": "failed", "kind": None, "exit_code": 3}
CHUNK = {"task_id": 1, "attempt": 1, "stream": "stdout", "offset": 0, "data": "YWI="}
ATTEMPT = {"task_id": 1, "attempt": 2}
HELD = {"task_id": "00000000-0001-8000-8000-000000000002", "attempt": 2}

BODIES: list[tuple[type, dict[str, Any]]] = [
    (SubmitTasks, {"tasks": [TASK, {"handler": "m:f"}, TASK], "idempotency_key": "k", "part": 0}),
    (ClaimTasks, {"epoch": 1, "claim_seq": 1, "acked_seq": 0, "max_tasks": 5, "wait_seconds": 1.0}),
    (ReportTasks, {"epoch": 1, "reports": [REPORT, REPORT]}),
    (WriteOutput, {"epoch": 1, "chunks": [CHUNK, CHUNK]}),
    (Followed, {"epoch": 1, "tasks": [1, 2], "everything": True}),
    (
        Renewal,
        {
            "incarnation": 1,
            "epoch": None,
            "started": [ATTEMPT, ATTEMPT],
            "held": {"acked_seq": 1, "task_ids": [1, 2]},
        },
    ),
    (ClaimNamedTasks, {"incarnation": 1, "held": [HELD, HELD], "max_tasks": 5}),
    (ReportNamedTasks, {"incarnation": 1, "reports": [{**HELD, "outcome": "failed"}]}),
    (CheckedOptions, {"timeout": 1.0, "retries": 1, "environment": {"A": "1"}, "labels": ["x"]}),
]

MODELS: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (
        TaskGroupSpec,
        {
            "name": "a",
            "tags": ["gpu"],
            "max_managers": 2,
            "reopen_on_submit": True,
            "auto_close_timeout": "90s",
            "environment_setup_hook": {
                "command": ["true"],
                "timeout": 5,
                "environment": {"A": "1"},
            },
            "worker_allocation_plan": {
                "worker_count": 2,
                "cpu_binding": {"cores": [0, 1], "strategy": "shared"},
                "python_path": ["/a"],
            },
        },
    ),
    (RegisterManager, {"name": "a", "tags": ["x"], "groups": ["a", "b"]}),
    (CancelBody, {"reason": "r", "cancel_running_tasks": True, "grace_seconds": 1.0}),
    (RetryBody, {"reasons": [], "cancelled": True, "idempotency_key": "k", "dry_run": False}),
]

WRONG: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 2**31, 2**63, 10**30, 0.5, -0.5, 1e300]),
    st.sampled_from(["", "x", "no base64!", "y" * 300]),
    st.sampled_from([[], {}]),
)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value inside ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for step, item in items:
        yield (*path, step)
        if isinstance(item, dict | list):
            yield from places(item, (*path, step))


def broken(body: Any, path: Path, value: Any) -> Any:
    """A copy of the body with another value at the path."""
    copy = json.loads(json.dumps(body))
    inside = copy
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    return copy


def objects(body: Any) -> list[Path]:
    """The paths of the objects with fixed fields."""

    def at(path: Path) -> Any:
        value = body
        for step in path:
            value = value[step]
        return value

    found = [path for path in places(body) if isinstance(at(path), dict)]
    return [(), *(path for path in found if path[-1] != "environment")]


def fits(body: Any, kind: type) -> bool:
    """What msgspec says, which reads the body in another way."""
    try:
        msgspec.json.decode(json.dumps(body), type=kind)
    except msgspec.ValidationError:
        return False
    return True


@given(st.data())
def test_the_field_that_was_broken_is_named(data: st.DataObject) -> None:
    kind, body = data.draw(st.sampled_from(BODIES))
    path = data.draw(st.sampled_from(list(places(body))))
    wrong = broken(body, path, data.draw(WRONG))
    assume(not fits(wrong, kind))
    with pytest.raises(InvalidRequest) as refusal:
        decode(json.dumps(wrong).encode(), msgspec.json.Decoder(kind))
    said, field = refusal.value.message, refusal.value.facts["field"]
    if said == "this field is required":  # an empty object has been put there
        field = field.rpartition(".")[0]
    assert field == joined_path(path)
    assert said.startswith(("must be ", "this field"))
    assert "Expected" not in said


@given(st.data())
def test_a_field_too_many_is_named(data: st.DataObject) -> None:
    kind, body = data.draw(st.sampled_from(BODIES))
    where = data.draw(st.sampled_from(objects(body)))
    wrong = broken(body, (*where, "more"), 1)
    with pytest.raises(InvalidRequest) as refusal:
        decode(json.dumps(wrong).encode(), msgspec.json.Decoder(kind))
    assert (refusal.value.message, refusal.value.facts["field"]) == (
        "unknown field",
        joined_path((*where, "more")),
    )


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_required_fields_are_named(kind: type[msgspec.Struct], body: dict[str, Any]) -> None:
    for field in msgspec.structs.fields(kind):
        rest = {name: value for name, value in body.items() if name != field.name}
        if field.required:
            with pytest.raises(InvalidRequest, match="required") as refusal:
                decode(json.dumps(rest).encode(), msgspec.json.Decoder(kind))
            assert refusal.value.facts["field"] == field.name
        else:
            decode(json.dumps(rest).encode(), msgspec.json.Decoder(kind))


@given(st.data())
def test_no_place_is_wrong_where_msgspec_finds_none(data: st.DataObject) -> None:
    kind, body = data.draw(st.sampled_from(BODIES))
    path = data.draw(st.sampled_from(list(places(body))))
    changed = broken(body, path, data.draw(WRONG))
    assert (find_mismatch(changed, kind) is None) == fits(changed, kind)


@given(st.data())
def test_models_name_the_field_in_words_of_ours(data: st.DataObject) -> None:
    model, body = data.draw(st.sampled_from(MODELS))
    path = data.draw(st.sampled_from(list(places(body))))
    wrong = broken(body, path, data.draw(WRONG))
    try:
        model.model_validate_json(json.dumps(wrong))
    except ValidationError as error:
        in_json, in_python = invalid_request(error.errors()), refused(error)
    else:
        assume(False)
    for refusal in (in_json, in_python):
        field = str(refusal.facts["field"])
        if refusal.message == "this field is required":
            field = field.rpartition(".")[0]
        assert field == joined_path(path) or field == joined_path(path[:-1])  # checked as a whole
        assert "Input should" not in refusal.message
        assert "Value error" not in refusal.message
