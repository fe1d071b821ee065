"""Why something waits: one line, computed by the API so that all clients show the same."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends

from api.deps import AppStateDep, ReadableGroup, readable_task
from api.limits import LimitedRoute
from api.routes.references import PATH
from mitosis.contracts.explain import Explanation
from mitosis.store.groups.explain import explain_group, explain_task

router = APIRouter(tags=["explain"], route_class=LimitedRoute)


@router.get(PATH + "/explain")
async def of_group(state: AppStateDep, group: ReadableGroup) -> Explanation:
    """Why the group stands where it stands, and each host that may serve it."""
    return await explain_group(state.store, group)


@router.get("/tasks/{task_uuid}/explain")
async def of_task(
    state: AppStateDep, task_uuid: Annotated[UUID, Depends(readable_task)]
) -> Explanation:
    """Why the task stands where it stands."""
    return await explain_task(state.store, task_uuid)
