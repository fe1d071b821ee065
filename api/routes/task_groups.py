"""Task groups: create, list, show and wait, change, delete, and the four verbs."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.deps import AppStateDep, ReadableGroup, UserDep, WritableGroup, require_role_in_group
from api.environments import sees_values, shown_group, shown_groups
from api.limits import LimitedRoute
from api.routes.references import PATH
from api.verbs import apply_verb
from mitosis.contracts.control import Cancel, Close, Complete, Reopen
from mitosis.contracts.http import (
    CancelBody,
    CompleteBody,
    Page,
    TagsBody,
    TaskGroupInfo,
    TaskGroupSpec,
    TaskGroupUpdate,
    VerbBody,
)
from mitosis.contracts.plans import PlanInfo, PlanTaskGroup
from mitosis.contracts.queries import DeleteGroupQuery, GroupQuery, GroupsQuery
from mitosis.store.groups import views
from mitosis.store.groups.definition import create_group, update_group
from mitosis.store.groups.deletion import delete_group
from mitosis.store.groups.events import wait_for_group
from mitosis.store.groups.plans import plan_group
from mitosis.store.groups.views import GroupFilter, cancel_stats, read_group

router = APIRouter(tags=["task groups"], route_class=LimitedRoute)


@router.post("/task-groups", status_code=201)
async def create(state: AppStateDep, user: UserDep, spec: TaskGroupSpec) -> TaskGroupInfo:
    """Create an OPEN task group. The call returns when PostgreSQL has it, even while Temporal is down."""
    group_name = spec.group_name or user.username
    await require_role_in_group(state, user, group_name, "write")
    owned = spec.model_copy(update={"group_name": group_name})
    return await create_group(state.store, owned, user.user_id)


@router.post("/task-groups/plan")
async def plan(state: AppStateDep, user: UserDep, body: PlanTaskGroup) -> PlanInfo:
    """Show what each host would do for a task group, and when it would begin and end. Creates nothing."""
    group_name = body.spec.group_name or user.username
    await require_role_in_group(state, user, group_name, "write")
    owned = body.spec.model_copy(update={"group_name": group_name})
    asked = body.model_copy(update={"spec": owned})
    return await plan_group(state.store, asked, user.user_id)


@router.get("/task-groups")
async def list_groups(
    state: AppStateDep, user: UserDep, query: Annotated[GroupsQuery, Query()]
) -> Page[TaskGroupInfo]:
    """List the groups that the caller may read, newest first."""
    which = GroupFilter(
        states=query.state,
        settled=query.settled,
        tags=query.tag,
        labels=query.label,
        name=query.name,
    )
    page = await views.list_groups(
        state.store, user.user_id, which, after=query.after, limit=query.limit
    )
    return shown_groups(page, user)


@router.post(PATH + "/close")
async def close(
    state: AppStateDep, group: WritableGroup, body: VerbBody | None = None
) -> TaskGroupInfo:
    """Accept no more tasks; complete when the last one ends."""
    return await apply_verb(state, group, Close(reason=body.reason if body else None))


@router.put(PATH + "/reopen")
async def reopen(
    state: AppStateDep, group: WritableGroup, body: VerbBody | None = None
) -> TaskGroupInfo:
    """Accept tasks again; only for a CLOSED task group."""
    return await apply_verb(state, group, Reopen(reason=body.reason if body else None))


@router.post(PATH + "/cancel")
async def cancel(
    state: AppStateDep, group: WritableGroup, body: CancelBody | None = None
) -> TaskGroupInfo:
    """Cancel the task group: no more tasks are claimed. ``counting`` until every task is counted.

    ``cancel_stats`` counts the unfinished tasks by outcome, as known so far.
    """
    info = await apply_verb(state, group, Cancel(**body.model_dump() if body else {}))
    stats = await cancel_stats(state.store, group)
    return info.model_copy(update={"cancel_stats": stats})


@router.post(PATH + "/complete")
async def complete(
    state: AppStateDep, group: WritableGroup, body: CompleteBody | None = None
) -> TaskGroupInfo:
    """Close and complete the task group; ``force`` cancels its unfinished tasks."""
    return await apply_verb(state, group, Complete(**body.model_dump() if body else {}))


@router.put(PATH + "/tags")
async def set_tags(state: AppStateDep, group: WritableGroup, body: TagsBody) -> TaskGroupInfo:
    """Replace the tags. The list of managers is unchanged until it is refreshed."""
    changes = TaskGroupUpdate(tags=body.tags, expected_updated_at=body.expected_updated_at)
    return await update_group(state.store, group, changes)


@router.get(PATH)
async def show(
    request: Request,
    state: AppStateDep,
    group: ReadableGroup,
    query: Annotated[GroupQuery, Query()],
) -> TaskGroupInfo:
    """Return the group now, or as soon as it has changed, ended or settled."""
    values = sees_values(request)
    if query.wait_seconds == 0:
        return shown_group(await read_group(state.store, group), values=values)
    waiting = wait_for_group(state.store, group, query.until, timedelta(seconds=query.wait_seconds))
    return shown_group(await state.long_polls.hold(request, waiting), values=values)


@router.put(PATH)
async def update(state: AppStateDep, group: WritableGroup, body: TaskGroupUpdate) -> TaskGroupInfo:
    """Change the fields that are given."""
    return await update_group(state.store, group, body)


@router.delete(PATH, status_code=204, responses={202: {"model": TaskGroupInfo}})
async def delete(
    state: AppStateDep, group: WritableGroup, query: Annotated[DeleteGroupQuery, Query()]
) -> Response:
    """Delete a settled group with its tasks and results. It is gone at once, and its name is free.

    With `force` any other group is cancelled, its hosts clean up, and then it is deleted: the answer is 202
    until it is gone. Repeating it is harmless.
    """
    forced = Cancel(reason=query.reason, grace_seconds=query.grace_seconds)
    if await delete_group(state.store, group, forced if query.force else None):
        return Response(status_code=204)
    info = await read_group(state.store, group)
    return Response(info.model_dump_json(), status_code=202, media_type="application/json")
