"""The calls of users about tasks."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.bodies import SUBMIT_LIMIT, decode, encode, read_body
from api.deps import (
    AppStateDep,
    ReadableGroup,
    UserDep,
    WritableGroup,
    app_state_of,
    readable_group,
    writable_group,
)
from api.environments import sees_values, shown_task
from api.limits import LimitedRoute
from api.openapi import hot_route
from api.routes.references import PATH
from mitosis.contracts.http import (
    Page,
    ResultsPage,
    RetriedTasks,
    RetryBody,
    TaskInfo,
)
from mitosis.contracts.queries import ResultsQuery, TasksQuery
from mitosis.contracts.task_cancel import CancelledTask, CancelledTasks, CancelTask, CancelTasks
from mitosis.contracts.wire import SubmitAnswer, SubmitTasks
from mitosis.store.tasks import views
from mitosis.store.tasks.cancel import cancel_tasks
from mitosis.store.tasks.results import wait_for_results
from mitosis.store.tasks.retry import retry_tasks
from mitosis.store.tasks.submit import submit_tasks

router = APIRouter(tags=["tasks"], route_class=LimitedRoute)

_SUBMIT = msgspec.json.Decoder(SubmitTasks)


@router.post(PATH + "/tasks", status_code=201, openapi_extra=hot_route(SubmitTasks, SubmitAnswer))
async def submit(request: Request, group: WritableGroup) -> Response:
    """Submit up to 10,000 tasks, all or nothing; split larger submissions into parts under one key."""
    body = decode(await read_body(request, SUBMIT_LIMIT), _SUBMIT)
    return encode(await submit_tasks(app_state_of(request).store, group, body), 201)


@router.post(PATH + "/retry")
async def retry(
    request: Request, state: AppStateDep, group: WritableGroup, body: RetryBody
) -> RetriedTasks:
    """Submit failed tasks again, each once and in parts, to the same task group or another one.

    Ask for the next part with `after` = `next`, under the same `idempotency_key`, until `next` is null.
    """
    into = group if body.into is None else await writable_group(request, body.into)
    return await retry_tasks(state.store, group, into, body)


@router.post(PATH + "/cancel-tasks")
async def cancel_some(
    state: AppStateDep, group: WritableGroup, body: CancelTasks
) -> CancelledTasks:
    """Cancel the tasks of a list, or those that a filter names, in parts. Idempotent.

    Tasks that run are stopped with the grace; all others never start. The result of a task that has ended
    stays. With `dry_run` the answer counts what would be cancelled.
    """
    return await cancel_tasks(state.store, group, body)


@router.get(PATH + "/tasks")
async def list_tasks(
    request: Request,
    state: AppStateDep,
    group: ReadableGroup,
    query: Annotated[TasksQuery, Query()],
) -> Page[TaskInfo]:
    """List the tasks of a group with their results, by id; failed attempts come without their output."""
    page = await views.list_tasks(
        state.store, group, state=query.state, after=query.after, limit=query.limit
    )
    return page.model_copy(update={"items": _shown(request, page.items)})


@router.get(PATH + "/results")
async def results(
    request: Request,
    state: AppStateDep,
    group: ReadableGroup,
    query: Annotated[ResultsQuery, Query()],
) -> ResultsPage:
    """Return the results recorded after number ``after``, in that order; may wait for the next one."""
    following = wait_for_results(
        state.store,
        group,
        after=query.after,
        limit=query.limit,
        timeout=timedelta(seconds=query.wait_seconds),
    )
    page = await state.long_polls.hold(request, following)
    return page.model_copy(update={"items": _shown(request, page.items)})


@router.post("/tasks/{task_uuid}/cancel")
async def cancel_one(
    request: Request,
    state: AppStateDep,
    _: UserDep,
    task_uuid: UUID,
    body: CancelTask | None = None,
) -> CancelledTask:
    """Cancel one task. The result of a task that has ended stays. Idempotent."""
    task = await views.read_task(state.store, task_uuid)
    group = await writable_group(request, str(task.task_group_id))
    how = body or CancelTask()
    one = CancelTasks(task_ids=(task.task_id,), reason=how.reason, grace_seconds=how.grace_seconds)
    (cancelled,) = (await cancel_tasks(state.store, group, one)).tasks
    return cancelled


@router.get("/tasks/{task_uuid}")
async def show(request: Request, state: AppStateDep, _: UserDep, task_uuid: UUID) -> TaskInfo:
    """Return one task: spec, state, attempts, failures, result."""
    task = await views.read_task(state.store, task_uuid)
    await readable_group(request, str(task.task_group_id))
    return shown_task(task, values=sees_values(request))


def _shown(request: Request, tasks: Sequence[TaskInfo]) -> list[TaskInfo]:
    values = sees_values(request)
    return [shown_task(task, values=values) for task in tasks]
