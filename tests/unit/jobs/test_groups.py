from typing import Any

from mitosis.contracts.http import TaskGroupSpec
from mitosis.jobs.definition import GroupSettings
from mitosis.jobs.groups import FIELDS, GroupKey, group_fields, groups_of
from mitosis.jobs.reading import definition_of
from mitosis.jobs.rendering import Values

SETTINGS: dict[str, Any] = {
    "tags": ["gpu"],
    "tag_match": "any",
    "priority": 3,
    "plan": {"worker_count": 2},
    "setup": {"command": ["get", "{{ params.date }}"], "environment": {"RUN": "r-{{ run.id }}"}},
    "teardown": {"command": ["rm", "{{ params.files }}"]},
    "probe": {"command": ["test", "-e", "x"]},
    "max_hosts": 4,
    "on_setup_failure": "wait",
    "host_lost_after": "30s",
    "cancel_grace_seconds": 5.0,
    "lease_settings": {"lease_duration": "1m"},
}
VALUES = Values(parameters={"date": "d", "files": ["a b", "c"]}, run={"id": "7"})


def test_every_field_becomes_one_of_a_task_group() -> None:
    assert FIELDS.keys() | {"standing"} == GroupSettings.model_fields.keys()
    assert set(FIELDS.values()) <= TaskGroupSpec.model_fields.keys()


def test_steps_of_worker_services_have_a_task_group_of_their_own() -> None:
    steps = {
        "a": {"command": ["x"]},
        "b": {"named_task": "n/t@1"},
        "c": {"handler": "m:f"},
        "d": {"command": ["x"], "group": "gpu"},
    }
    job = definition_of({"name": "j", "groups": {"gpu": {}}, "steps": steps})
    assert groups_of(job) == {
        GroupKey("main", "managed"): ["a", "c"],
        GroupKey("main", "service"): ["b"],
        GroupKey("gpu", "managed"): ["d"],
    }


def test_hooks_have_their_values() -> None:
    fields = group_fields(GroupSettings.model_validate(SETTINGS), "managed", VALUES)
    spec = TaskGroupSpec(name="g", **fields)
    assert spec.environment_setup_hook is not None
    assert spec.environment_setup_hook.command == ("get", "d")
    assert spec.environment_setup_hook.environment == {"RUN": "r-7"}
    assert spec.environment_teardown_hook is not None
    assert spec.environment_teardown_hook.command == ("rm", "a b", "c")
    assert (spec.priority, spec.max_managers, spec.tag_match) == (3, 4, "any")
    assert spec.worker_allocation_plan.worker_count == 2
    assert spec.on_setup_failure == "wait"


def test_a_group_without_settings_ends_when_its_setup_has_failed_everywhere() -> None:
    assert group_fields(GroupSettings(), "service", Values()) == {
        "kind": "service",
        "on_setup_failure": "end",
    }
