"""Explains why something waits, in one line; the API computes it, so all clients show the same."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends
from pydantic import AwareDatetime

from api.deps import AppStateDep, ReadableGroup, UserDep, readable_task
from api.limits import LimitedRoute
from api.routes.managers import VisibleManager
from api.routes.references import PATH
from mitosis.contracts.explain import Explanation, HostExplanation
from mitosis.store.groups.explain import explain_group, explain_group_at, explain_task
from mitosis.store.managers.explain import explain_manager, explain_manager_at

router = APIRouter(tags=["explain"], route_class=LimitedRoute)


@router.get(PATH + "/explain")
async def of_group(
    state: AppStateDep, group: ReadableGroup, at: AwareDatetime | None = None
) -> Explanation:
    """Explain the state of a task group, and of each host that may serve it.

    ``at``: explain the last decision about hosts before this time instead, made again on what it knew.
    """
    if at is not None:
        return await explain_group_at(state.store, group, at)
    return await explain_group(state.store, group)


@router.get("/tasks/{task_uuid}/explain")
async def of_task(
    state: AppStateDep, task_uuid: Annotated[UUID, Depends(readable_task)]
) -> Explanation:
    """Explain the state of a task."""
    return await explain_task(state.store, task_uuid)


@router.get("/managers/{manager_id}/explain")
async def of_manager(
    state: AppStateDep, user: UserDep, manager: VisibleManager, at: AwareDatetime | None = None
) -> HostExplanation:
    """Explain what a host does, and why it does not serve the task groups with work that the caller may read.

    ``at``: explain the last decision about hosts before this time instead, made again on what it knew.
    """
    readable = None if user.is_admin else user.groups.keys()
    if at is not None:
        return await explain_manager_at(state.store, manager.manager_id, at, readable)
    return await explain_manager(state.store, manager.manager_id, readable)
