"""The calls about templates of task groups; :class:`Client` has them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

from mitosis.client.parameters import group_reference
from mitosis.client.port import Group
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.http import Page, TaskGroupInfo
from mitosis.contracts.templates import CreateFromTemplate, SaveTemplate, TemplateInfo

Template = UUID | str
"""Id, ``USERGROUP/NAME``, or the name of a template of the caller's own user group."""


class TemplateCalls(RepeatedCalls):
    """Save, list, show, use and delete templates."""

    async def save_template(
        self,
        name: str,
        spec: Mapping[str, Any] | None = None,
        *,
        task_group: Group | None = None,
        group_name: str | None = None,
        replace: bool = False,
    ) -> TemplateInfo:
        """Save the fields of a task group under a name, or those of an existing task group.

        Raises:
            AlreadyExists: the name is taken, and ``replace`` is not given.
        """
        body = SaveTemplate(
            name=name,
            group_name=group_name,
            spec=None if spec is None else dict(spec),
            task_group=None if task_group is None else group_reference(task_group, "task_group"),
            replace=replace,
        )
        return await self._api.model(TemplateInfo, "POST", "/task-group-templates", body)

    def templates(self) -> AsyncIterator[TemplateInfo]:
        """Iterate over the templates of the caller's user groups."""
        return self._pages(Page[TemplateInfo], "/task-group-templates", {})

    async def template(self, template: Template) -> TemplateInfo:
        return await self._get(TemplateInfo, _path(template))

    async def create_from_template(
        self,
        template: Template,
        name: str,
        overrides: Mapping[str, Any] | None = None,
        *,
        group_name: str | None = None,
    ) -> TaskGroupInfo:
        """Create a task group; objects among the overrides are merged, None takes a value away.

        Not retried: without an answer it may or may not exist.

        Raises:
            AlreadyExists: the name is taken in its user group.
        """
        body = CreateFromTemplate(name=name, group_name=group_name, overrides=dict(overrides or {}))
        return await self._api.model(TaskGroupInfo, "POST", _path(template) + "/create", body)

    async def delete_template(self, template: Template) -> None:
        """Delete a template; task groups that were made of it stay."""
        await self._api.call("DELETE", _path(template))


def _path(template: Template) -> str:
    return f"/task-group-templates/{group_reference(template, 'template')}"
