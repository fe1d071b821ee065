"""The task groups of a run: which steps share one, and its fields as a request has them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mitosis.contracts.hook import HookSpec
from mitosis.jobs.definition import GroupSettings, JobDefinition
from mitosis.jobs.rendering import Values, argv_of, filled

MANAGED, SERVICE = "managed", "service"
FIELDS: Mapping[str, str] = {
    "tags": "tags",
    "tag_match": "tag_match",
    "priority": "priority",
    "plan": "worker_allocation_plan",
    "setup": "environment_setup_hook",
    "teardown": "environment_teardown_hook",
    "probe": "environment_probe",
    "max_hosts": "max_managers",
    "on_setup_failure": "on_setup_failure",
    "host_lost_after": "host_lost_after",
    "cancel_grace_seconds": "cancel_grace_seconds",
    "preference_seconds": "preference_seconds",
    "lease_settings": "lease_settings",
}
"""Field of the definition -> field of :class:`mitosis.contracts.http.TaskGroupSpec`."""
_HOOKS = ("setup", "teardown", "probe")


class GroupKey(NamedTuple):
    """One task group of a run: its name in the definition, and who executes its tasks."""

    name: str
    kind: str


def groups_of(definition: JobDefinition) -> dict[GroupKey, list[str]]:
    """Return the steps of each task group of a run: those of worker services apart from the others."""
    found: dict[GroupKey, list[str]] = {}
    for name, step in sorted(definition.steps.items()):
        kind = MANAGED if step.named_task is None else SERVICE
        found.setdefault(GroupKey(step.group, kind), []).append(name)
    return found


def group_fields(settings: GroupSettings, kind: str, values: Values) -> dict[str, Any]:
    """Return the fields of a new task group without its name; hooks have their values.

    Raises:
        InvalidRequest: a reference of a hook has no value, or one that does not fit.
    """
    given = {name: getattr(settings, name) for name in settings.model_fields_set if name in FIELDS}
    for name in _HOOKS:
        if given.get(name) is not None:
            given[name] = _filled_hook(given[name], values)
    given.setdefault("on_setup_failure", settings.on_setup_failure)
    return {"kind": kind, **{FIELDS[name]: value for name, value in given.items()}}


def _filled_hook(hook: HookSpec, values: Values) -> HookSpec:
    variables = {
        name: filled(text, values, f"environment.{name}") for name, text in hook.environment.items()
    }
    argv = tuple(argv_of(hook.command, values))
    return hook.model_copy(update={"command": argv, "environment": variables})
