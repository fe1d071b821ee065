"""What the SDK and the command line add to a new task group: nothing that the API refuses for its kind."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import get_args
from uuid import UUID

import pytest

from mitosis.cli.group.create import merged, typed_fields
from mitosis.cli.group.options import GroupOptions
from mitosis.cli.retry import spec_of
from mitosis.cli.run.command import _group_spec
from mitosis.cli.run.options import RunGroupOptions
from mitosis.client.creating import Planned, planned
from mitosis.client.program import search_path
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskGroupInfo, TaskGroupKind, TaskGroupSpec
from mitosis.store.groups.kinds import check_fields_of_kind

KINDS: tuple[TaskGroupKind, ...] = get_args(TaskGroupKind)


def spec(kind: TaskGroupKind) -> TaskGroupSpec:
    return TaskGroupSpec(name="g", kind=kind)


def info(kind: TaskGroupKind) -> TaskGroupInfo:
    """A task group as the API shows one of which only name and kind were given."""
    counts = [name for name in TaskGroupInfo.model_fields if name.startswith("tasks_")]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return TaskGroupInfo.model_validate(
        {
            **spec(kind).model_dump(include={*TaskGroupInfo.model_fields}),
            **dict.fromkeys(counts, 0),
            "task_group_id": UUID(int=1),
            "group_name": "team",
            "state": "open",
            "settled": False,
            "created_at": now,
            "updated_at": now,
            "workflow_id": "task-group/1",
        }
    )


def from_command_line(kind: TaskGroupKind) -> TaskGroupSpec:
    return TaskGroupSpec.model_validate(merged({"kind": kind}, typed_fields("g", GroupOptions())))


def like_an_earlier_one(kind: TaskGroupKind) -> TaskGroupSpec:
    return TaskGroupSpec.model_validate({**spec_of(info(kind)), "name": "g"})


def by_run(_: TaskGroupKind) -> TaskGroupSpec:
    return _group_spec(RunGroupOptions(), "gzip")


def by_program(group: TaskGroupSpec | str | None) -> TaskGroupSpec:
    made = planned(group, None).group
    assert isinstance(made, TaskGroupSpec)
    return made


OF_ANY_KIND: dict[str, Callable[[TaskGroupKind], TaskGroupSpec]] = {
    "task_group(spec)": lambda kind: by_program(spec(kind)),
    "group create, group plan": from_command_line,
    "retry into a new group": like_an_earlier_one,
}
OF_HOSTS: dict[str, Callable[[TaskGroupKind], TaskGroupSpec]] = {
    "task_group()": lambda _: by_program(None),
    "task_group(name)": lambda _: by_program("g"),
    "run": by_run,
}
CASES = [(way, kind) for way in OF_ANY_KIND for kind in KINDS] + [
    (way, "managed") for way in OF_HOSTS
]


@pytest.mark.parametrize(("way", "kind"), CASES)
def test_no_default_is_refused_by_a_kind_of_group(way: str, kind: TaskGroupKind) -> None:
    made = (OF_ANY_KIND | OF_HOSTS)[way](kind)
    assert made.kind == kind
    check_fields_of_kind(kind, made)


def test_workers_of_hosts_look_where_this_program_does() -> None:
    assert by_program(spec("managed")).worker_allocation_plan.python_path == search_path()
    assert planned(spec("service"), None) == Planned(spec("service"))


def test_workers_of_a_service_group_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="kind service") as refused:
        planned(spec("service"), 2)
    assert refused.value.facts["field"] == "workers"
