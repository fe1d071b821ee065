"""Who only reads gets the names of environment variables: every place of an answer that has values."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from api.environments import (
    HOLDERS,
    require_values,
    sees_values_in,
    shown_event,
    shown_group,
    shown_task,
    shown_template,
)
from mitosis.contracts.accounts import Role, User
from mitosis.contracts.errors import PermissionDenied
from mitosis.contracts.following import GroupEvent, OutputEvent
from mitosis.contracts.http import TaskGroupInfo, TaskInfo
from mitosis.contracts.templates import TemplateInfo

NOW, ID = datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1)
HOOK = {"command": ["x"], "environment": {"NAME": "value"}}
PARTS = dict.fromkeys(HOLDERS, HOOK) | {
    "worker_allocation_plan": {"environment": {"NAME": "value"}}
}
GROUP = TaskGroupInfo.model_validate(
    {
        "task_group_id": ID,
        "name": "work",
        "group_name": "ann",
        "state": "open",
        "settled": False,
        "tags": [],
        "labels": [],
        "priority": 0,
        "tasks_total": 0,
        "tasks_unfinished": 0,
        "tasks_completed": 0,
        "tasks_succeeded": 0,
        "tasks_failed": 0,
        "tasks_cancelled": 0,
        "created_at": NOW,
        "updated_at": NOW,
        "workflow_id": "w",
        **PARTS,
    }
)
TASK = TaskInfo.model_validate(
    {
        "task_id": 1,
        "task_uuid": ID,
        "task_group_id": ID,
        "state": "ready",
        "attempt": 0,
        "spec": HOOK,
        "created_at": NOW,
    }
)


def user(role: Role | None, *, is_admin: bool = False) -> User:
    return User(ID, "bob", is_admin, 1, {} if role is None else {"ann": role})


def test_a_task_group_shows_names() -> None:
    assert shown_group(GROUP, values=True) is GROUP
    shown = shown_group(GROUP, values=False)
    assert [getattr(shown, name).environment for name in HOLDERS] == [{"NAME": None}] * 4
    assert "value" not in shown.model_dump_json()
    without = GROUP.model_copy(update={"environment_probe": None})
    assert shown_group(without, values=False).environment_probe is None


def test_every_part_with_an_environment_is_covered() -> None:
    fields = TaskGroupInfo.model_fields
    assert sorted(HOLDERS) == sorted(n for n in fields if hasattr(getattr(GROUP, n), "environment"))


def test_a_task_shows_names_and_its_command() -> None:
    assert shown_task(TASK, values=True) is TASK
    assert shown_task(TASK, values=False).spec == {"command": ["x"], "environment": {"NAME": None}}
    odd = TASK.model_copy(update={"spec": {"environment": "unreadable value"}})
    assert shown_task(odd, values=False).spec == {"environment": None}


def test_a_template_shows_names_to_those_who_only_read() -> None:
    template = TemplateInfo(
        template_id=ID,
        name="t",
        group_name="ann",
        created_by="ann",
        spec={**PARTS, "priority": 1},
        created_at=NOW,
        updated_at=NOW,
    )
    for one, values in (
        (user("write"), True),
        (user(None, is_admin=True), True),
        (user("read"), False),
    ):
        text = shown_template(template, values=sees_values_in(one, "ann")).model_dump_json()
        assert ("value" in text.replace("values", ""), "NAME" in text) == (values, True)
    assert not sees_values_in(user(None), "ann")


@pytest.mark.parametrize(
    "event",
    [
        GroupEvent(kind="group", cursor=0, at=NOW, group=GROUP),
        GroupEvent(kind="result", cursor=0, at=NOW, result=TASK),
        OutputEvent(kind="result", result=TASK),
    ],
)
def test_events_show_names(event: Any) -> None:
    assert '"value"' in shown_event(event, values=True).text()
    text = shown_event(event, values=False).text()
    assert ('"value"' in text, "NAME" in text) == (False, True)


def test_values_are_not_copied_for_those_who_do_not_see_them() -> None:
    require_values(PARTS, values=True)
    require_values({"environment_setup_hook": {"command": ["x"], "environment": {}}}, values=False)
    require_values({"environment_setup_hook": None, "priority": 1}, values=False)
    for name in HOLDERS:
        with pytest.raises(PermissionDenied):
            require_values({name: PARTS[name]}, values=False)
