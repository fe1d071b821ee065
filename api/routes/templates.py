"""Templates of task groups: save, list, show, delete, and create a task group from one."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.deps import AppStateDep, UserDep, readable_group, require_role_in_group
from api.environments import (
    require_values,
    sees_values,
    sees_values_in,
    shown_template,
    shown_templates,
)
from api.limits import LimitedRoute
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import Page, TaskGroupInfo
from mitosis.contracts.ids import as_uuid
from mitosis.contracts.queries import ListQuery
from mitosis.contracts.templates import (
    CreateFromTemplate,
    SaveTemplate,
    TemplateInfo,
    checked_spec,
    spec_from,
)
from mitosis.store.groups.definition import create_group
from mitosis.store.groups.templates import (
    delete_template,
    fields_of_group,
    list_templates,
    read_template,
    save_template,
)

router = APIRouter(tags=["templates"], route_class=LimitedRoute)
PATH = "/task-group-templates"
ONE = PATH + "/{reference:task_group}"


async def visible_template(state: AppStateDep, user: UserDep, reference: str) -> TemplateInfo:
    """Return the template of the path, for users of its user group.

    Raises:
        NotFound: there is no such template, or the user may not see it.
    """
    named = "/" in reference or as_uuid(reference) is not None
    template = await read_template(
        state.store, reference if named else f"{user.username}/{reference}"
    )
    if not (user.is_admin or template.group_name in user.groups):
        raise NotFound(f"there is no template {reference}")
    return template


VisibleTemplate = Annotated[TemplateInfo, Depends(visible_template)]


@router.post(PATH, status_code=201)
async def save(
    request: Request, state: AppStateDep, user: UserDep, body: SaveTemplate
) -> TemplateInfo:
    """Save a template, from fields or from a task group. It has no name of a task group and no deadline."""
    group_name = body.group_name or user.username
    await require_role_in_group(state, user, group_name, "write")
    if body.task_group is not None:
        source = await readable_group(request, body.task_group)
        spec = await fields_of_group(state.store, source)
        require_values(spec, values=sees_values(request))
    else:
        spec = checked_spec(body.spec or {}, "spec")
    return await save_template(
        state.store, user.user_id, group_name, body.name, spec, replace=body.replace
    )


@router.get(PATH)
async def list_all(
    state: AppStateDep, user: UserDep, query: Annotated[ListQuery, Query()]
) -> Page[TemplateInfo]:
    """List the templates of the caller's user groups, by user group and name."""
    page = await list_templates(state.store, user.user_id, after=query.after, limit=query.limit)
    return shown_templates(page, user)


@router.post(ONE + "/create", status_code=201)
async def create(
    state: AppStateDep, user: UserDep, template: VisibleTemplate, body: CreateFromTemplate
) -> TaskGroupInfo:
    """Create a task group from a template, with other values where they are given."""
    group_name = body.group_name or template.group_name
    await require_role_in_group(state, user, group_name, "write")
    require_values(template.spec, values=sees_values_in(user, template.group_name))
    spec = spec_from(template.spec, body.overrides, body.name, group_name)
    return await create_group(state.store, spec, user.user_id)


@router.get(ONE)
async def show(user: UserDep, template: VisibleTemplate) -> TemplateInfo:
    """Return one template."""
    values = sees_values_in(user, template.group_name)
    return shown_template(template, values=values)


@router.delete(ONE, status_code=204)
async def delete(state: AppStateDep, user: UserDep, template: VisibleTemplate) -> None:
    """Delete a template; task groups that were made of it stay."""
    await require_role_in_group(state, user, template.group_name, "write")
    await delete_template(state.store, template.template_id)
