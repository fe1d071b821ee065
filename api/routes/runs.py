"""Runs of jobs: start, list, show and wait, cancel, rerun, delete, and the tasks of their steps."""

import asyncio
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request

from api.deps import AppStateDep, UserDep, require_role_in_group
from api.environments import sees_values_in, shown_run, shown_run_definition
from api.limits import LimitedRoute
from api.routes.jobs import visible_job
from mitosis.contracts.accounts import User
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import Page
from mitosis.contracts.jobs import JobQuery
from mitosis.contracts.runs import (
    CancelRun,
    RerunRun,
    RunDefinition,
    RunInfo,
    RunQuery,
    RunsQuery,
    RunView,
    StartRun,
    StepTask,
    StepTasksQuery,
)
from mitosis.jobs.reading import definition_of
from mitosis.store.missing import missing_run
from mitosis.store.runs.starting import NewRun, StartedRun, rerun, start_run, started_before
from mitosis.store.runs.stopping import cancel_run, delete_run
from mitosis.store.runs.views import (
    FoundRun,
    find_run,
    list_runs,
    list_step_tasks,
    read_definition,
    read_run,
    wait_for_run,
)

router = APIRouter(tags=["runs"], route_class=LimitedRoute)
PATH = "/runs"
ONE = PATH + "/{run_id}"


async def visible_run(state: AppStateDep, user: UserDep, run_id: UUID) -> FoundRun:
    """Return the run of the path, for users of its user group.

    Raises:
        NotFound: there is no such run, or the user may not see it.
    """
    found = await find_run(state.store, run_id)
    if not (user.is_admin or found.group_name in user.groups):
        raise missing_run(run_id)
    return found


async def writable_run(state: AppStateDep, user: UserDep, run_id: UUID) -> FoundRun:
    """Return the run of the path, for users who may change it.

    Raises:
        NotFound: as for :func:`visible_run`.
        PermissionDenied: the user may only read it.
    """
    found = await visible_run(state, user, run_id)
    await require_role_in_group(state, user, found.group_name, "write")
    return found


VisibleRun = Annotated[FoundRun, Depends(visible_run)]
WritableRun = Annotated[FoundRun, Depends(writable_run)]


@router.post(PATH, status_code=201)
async def start(state: AppStateDep, user: UserDep, body: StartRun) -> RunView:
    """Start a run. The call returns when PostgreSQL has its first tasks, even while Temporal is down."""
    try:
        new = await _new_run(state, user, body)
    except NotFound:
        key = body.idempotency_key
        before = await started_before(state.store, user.user_id, key, _asked(body))
        if before is None:
            raise
        return await _shown(state, before)
    return await _shown(state, await start_run(state.store, new))


async def _new_run(state: AppStateDep, user: User, body: StartRun) -> NewRun:
    job = None
    if body.job is not None:
        job = await visible_job(state, user, body.job, JobQuery(version=body.version))
    group_name = job.group_name if job is not None else body.group_name or user.username
    await require_role_in_group(state, user, group_name, "write")
    fields = job.definition if job is not None else body.definition or {}
    return NewRun(
        user_id=user.user_id,
        group_name=group_name,
        definition=await asyncio.to_thread(definition_of, fields),
        parameters=body.parameters,
        job_id=None if job is None else job.job_id,
        version=None if job is None else job.version,
        name=body.name,
        labels=body.labels,
        idempotency_key=body.idempotency_key,
        asked=_asked(body),
    )


def _asked(body: StartRun) -> dict[str, Any]:
    """Return what a call asks for: the same for a replay of its key."""
    return body.model_dump(mode="json", exclude={"idempotency_key"})


async def _shown(state: AppStateDep, started: StartedRun) -> RunView:
    view = await read_run(state.store, started.run_id)
    return view.model_copy(update={"replayed": started.replayed})


@router.get(PATH)
async def list_all(
    state: AppStateDep, user: UserDep, query: Annotated[RunsQuery, Query()]
) -> Page[RunInfo]:
    """List the runs of the caller's user groups, the newest first."""
    if query.schedule is not None:
        group_name, _, name = query.schedule.rpartition("/")
        of_group = group_name or query.group_name or user.username
        query = query.model_copy(update={"schedule": name, "group_name": of_group})
    return await list_runs(state.store, user.user_id, query)


@router.get(ONE)
async def show(
    request: Request,
    state: AppStateDep,
    user: UserDep,
    run: VisibleRun,
    query: Annotated[RunQuery, Query()],
) -> RunView:
    """Return the run now, or as soon as it has changed or ended. Readers see no values of parameters."""
    if query.wait_seconds == 0:
        found = await read_run(state.store, run.run_id)
    else:
        found = await state.long_polls.hold(request, wait_for_run(state.store, run, query))
    return shown_run(found, values=sees_values_in(user, run.group_name))


@router.get(ONE + "/definition")
async def definition(state: AppStateDep, user: UserDep, run: VisibleRun) -> RunDefinition:
    """Return the definition that the run executes. Readers see no values of environments and defaults."""
    found = await read_definition(state.store, run.run_id)
    return shown_run_definition(found, values=sees_values_in(user, run.group_name))


@router.get(ONE + "/steps/{step}/tasks")
async def step_tasks(
    state: AppStateDep, run: VisibleRun, step: str, query: Annotated[StepTasksQuery, Query()]
) -> Page[StepTask]:
    """List the tasks of a step by their index, with their results."""
    return await list_step_tasks(state.store, run.run_id, step, query)


@router.post(ONE + "/cancel")
async def cancel(state: AppStateDep, run: WritableRun, body: CancelRun | None = None) -> RunView:
    """Cancel the rest of a run. Steps that clean up still run, unless they are to be skipped too."""
    await cancel_run(state.store, run.run_id, body or CancelRun())
    return await read_run(state.store, run.run_id)


@router.post(ONE + "/rerun", status_code=201)
async def run_again(
    state: AppStateDep, user: UserDep, run: WritableRun, body: RerunRun | None = None
) -> RunView:
    """Start a new run of an ended one. Steps that need not run again are taken over with their results."""
    started = await rerun(state.store, run.run_id, user.user_id, body or RerunRun())
    return await _shown(state, started)


@router.delete(ONE, status_code=204)
async def delete(state: AppStateDep, run: WritableRun) -> None:
    """Delete an ended run with its own task groups, their tasks and results."""
    await delete_run(state.store, run.run_id)
