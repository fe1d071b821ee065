"""Removes the values of environment variables and parameters from answers to users whose role is only read.

Values may be secrets. Names stay, with null as their value: a reader sees which variables a hook, a worker or
a task gets. Every route that answers with a task group, a task, a job, a schedule, the definition of a run or
a template passes it through here.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from starlette.requests import HTTPConnection

from mitosis.contracts.accounts import RANK, Role, User
from mitosis.contracts.errors import PermissionDenied
from mitosis.contracts.following import GroupEvent, OutputEvent
from mitosis.contracts.http import Page, TaskGroupInfo, TaskInfo
from mitosis.contracts.jobs import JobVersion
from mitosis.contracts.runs import RunDefinition, RunView
from mitosis.contracts.schedules import ScheduleInfo
from mitosis.contracts.templates import TemplateInfo

HOLDERS = (
    "worker_allocation_plan",
    "environment_setup_hook",
    "environment_teardown_hook",
    "environment_probe",
)
"""The members of a task group that have an environment."""

Event = TypeVar("Event", GroupEvent, OutputEvent)


def keep_role(request: HTTPConnection, role: Role) -> None:
    """Note the caller's role in the user group of what the path names."""
    request.state.role = role


def sees_values(request: HTTPConnection) -> bool:
    """Return whether the role that :func:`keep_role` has noted includes write."""
    return _includes_write(cast("Role | None", getattr(request.state, "role", None)))


def sees_values_in(user: User, group_name: str) -> bool:
    """Return whether the role of a user in a user group includes write."""
    return user.is_admin or _includes_write(user.groups.get(group_name))


def shown_group(group: TaskGroupInfo, *, values: bool) -> TaskGroupInfo:
    """Return a task group as a caller may see it."""
    if values:
        return group
    return group.model_copy(
        update={
            name: part.model_copy(update={"environment": dict.fromkeys(part.environment)})
            for name in HOLDERS
            if (part := getattr(group, name)) is not None
        }
    )


def shown_task(task: TaskInfo, *, values: bool) -> TaskInfo:
    """Return a task as a caller may see it."""
    return task if values else task.model_copy(update={"spec": _names_only(task.spec)})


def shown_template(template: TemplateInfo, *, values: bool) -> TemplateInfo:
    """Return a template as a caller may see it."""
    if values:
        return template
    spec = {
        name: _names_only(part) if name in HOLDERS and isinstance(part, Mapping) else part
        for name, part in template.spec.items()
    }
    return template.model_copy(update={"spec": spec})


def shown_job(job: JobVersion, *, values: bool) -> JobVersion:
    """Return a version of a job as a caller may see it."""
    if values:
        return job
    return job.model_copy(update={"definition": _without_values(job.definition)})


def shown_run_definition(found: RunDefinition, *, values: bool) -> RunDefinition:
    """Return the definition of a run as a caller may see it."""
    if values:
        return found
    return found.model_copy(update={"definition": _without_values(found.definition)})


def shown_run(run: RunView, *, values: bool) -> RunView:
    """Return a run as a caller may see it: of its parameters, a reader sees the names."""
    if values:
        return run
    return run.model_copy(update={"parameters": dict.fromkeys(run.parameters)})


def shown_schedule(schedule: ScheduleInfo, *, values: bool) -> ScheduleInfo:
    """Return a schedule as a caller may see it: of its parameters, a reader sees the names."""
    if values:
        return schedule
    return schedule.model_copy(update={"parameters": dict.fromkeys(schedule.parameters)})


def shown_groups(page: Page[TaskGroupInfo], user: User) -> Page[TaskGroupInfo]:
    """Return a list of task groups of several user groups."""
    items = [shown_group(each, values=sees_values_in(user, each.group_name)) for each in page.items]
    return page.model_copy(update={"items": items})


def shown_templates(page: Page[TemplateInfo], user: User) -> Page[TemplateInfo]:
    """Return a list of templates of several user groups."""
    items = [
        shown_template(each, values=sees_values_in(user, each.group_name)) for each in page.items
    ]
    return page.model_copy(update={"items": items})


def shown_event(event: Event, *, values: bool) -> Event:
    """Return an event as a caller may see it."""
    if values:
        return event
    changes: dict[str, object] = {}
    if isinstance(event, GroupEvent) and event.group is not None:
        changes["group"] = shown_group(event.group, values=False)
    if event.result is not None:
        changes["result"] = shown_task(event.result, values=False)
    return event.model_copy(update=changes)


def require_values(spec: Mapping[str, Any], *, values: bool) -> None:
    """Refuse to copy the fields of a task group for a caller who may not see all of them.

    Raises:
        PermissionDenied: the fields have environment variables.
    """
    parts = [spec.get(name) for name in HOLDERS]
    if not values and any(part.get("environment") for part in parts if isinstance(part, Mapping)):
        raise PermissionDenied(
            "copying environment variables needs the role write in the user group they are from",
            needed="write",
        )


def _without_values(definition: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**definition, "steps": _parts(definition.get("steps"))}
    if isinstance(parameters := definition.get("parameters"), Mapping):
        shown["parameters"] = {name: _without_default(one) for name, one in parameters.items()}
    if "groups" in shown:
        shown["groups"] = {name: _parts(group) for name, group in shown["groups"].items()}
    return shown


def _without_default(parameter: object) -> object:
    if isinstance(parameter, Mapping) and "default" in parameter:
        return {**parameter, "default": None}
    return parameter


def _parts(parts: object) -> object:
    """Return a mapping of parts, each without the values of its environment."""
    if not isinstance(parts, Mapping):
        return parts
    return {
        name: _names_only(part) if isinstance(part, Mapping) else part
        for name, part in parts.items()
    }


def _names_only(spec: Mapping[str, Any]) -> dict[str, Any]:
    if "environment" not in spec:
        return dict(spec)
    environment = spec["environment"]
    return {
        **spec,
        "environment": dict.fromkeys(environment) if isinstance(environment, Mapping) else None,
    }


def _includes_write(role: Role | None) -> bool:
    return role is not None and RANK[role] >= RANK["write"]
