"""Templates of task groups: a saved specification without the name, and how a group is made of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from mitosis.contracts.checked_model import Flag, refused
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import AnswerBody, RequestBody, TaskGroupSpec
from mitosis.contracts.identifiers import Name, NewName

OF_THE_GROUP = {
    "name": "each task group gets a name of its own when it is created",
    "group_name": "the user group is that of the template, or is given when the task group is created",
    "close_deadline": "a moment is over for later task groups; give it when the task group is created",
}
"""Fields of a task group that its template does not have, and why."""
FIELDS = frozenset(TaskGroupSpec.model_fields) - OF_THE_GROUP.keys()


class SaveTemplate(RequestBody):
    """Save a template: give either ``spec`` or ``task_group``."""

    name: NewName
    group_name: Name | None = None
    """User group that owns it; None = the caller's own."""
    spec: dict[str, Any] | None = None
    """Fields of a task group."""
    task_group: str | None = Field(default=None, validate_default=True)
    """Take the fields of this task group: id, NAME or USERGROUP/NAME."""
    replace: Flag = False
    """Replace the template of this name; task groups that were made of it stay as they are."""

    @field_validator("task_group")
    @classmethod
    def _one_of_both(cls, group: str | None, known: ValidationInfo) -> str | None:
        if (group is None) == (known.data.get("spec") is None):
            raise ValueError("give either spec or task_group")
        return group


class CreateFromTemplate(RequestBody):
    """A new task group from a template."""

    name: NewName
    group_name: Name | None = None
    """User group that owns the task group; None = that of the template."""
    overrides: dict[str, Any] = Field(default={})
    """Fields of the task group that differ: objects are merged field by field, null takes a value away."""


class TemplateInfo(AnswerBody):
    template_id: UUID
    name: str
    group_name: str
    spec: dict[str, Any]
    created_by: str
    created_at: datetime
    updated_at: datetime


def checked_spec(spec: Mapping[str, Any], field: Literal["spec", "overrides"]) -> dict[str, Any]:
    """Return the fields of a template as JSON values; only those that are given.

    Raises:
        InvalidRequest: names the field below ``field``.
    """
    for name, why in OF_THE_GROUP.items():
        if name in spec:
            raise InvalidRequest(why, field=f"{field}.{name}")
    try:
        made = TaskGroupSpec.model_validate({**spec, "name": "template"})
    except ValidationError as error:
        raise refused(error, field) from None
    return made.model_dump(mode="json", exclude_unset=True, exclude={"name"})


def spec_from(
    template: Mapping[str, Any], overrides: Mapping[str, Any], name: str, group_name: str
) -> TaskGroupSpec:
    """Return the specification of a task group.

    Raises:
        InvalidRequest: names the override, or says that the template itself is not valid any more.
    """
    for field in ("name", "group_name"):
        if field in overrides:
            raise InvalidRequest(f"give {field} beside the overrides", field=f"overrides.{field}")
    fields = {**merged(template, overrides), "name": name, "group_name": group_name}
    try:
        return TaskGroupSpec.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["loc"]
        if first and first[0] in overrides:
            raise refused(error, "overrides") from None
        wrong = refused(error)
        raise InvalidRequest(
            f"the template is not valid any more: {wrong}; save it again", field="template"
        ) from None


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``below`` with the values of ``above``: objects field by field, None removes (RFC 7396)."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result
