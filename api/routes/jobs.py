"""Stored jobs: define, list, show, delete."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.deps import AppStateDep, UserDep, require_role_in_group
from api.environments import sees_values_in, shown_job
from api.limits import LimitedRoute
from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import Page
from mitosis.contracts.ids import as_uuid
from mitosis.contracts.jobs import DefineJob, JobInfo, JobQuery, JobVersion
from mitosis.contracts.queries import ListQuery
from mitosis.jobs.reading import definition_of
from mitosis.store.jobs.jobs import define_job, delete_job, list_jobs, list_versions, read_job

router = APIRouter(tags=["jobs"], route_class=LimitedRoute)
PATH = "/jobs"
ONE = PATH + "/{reference:task_group}"


async def visible_job(
    state: AppStateDep, user: UserDep, reference: str, query: Annotated[JobQuery, Query()]
) -> JobVersion:
    """Return the version of the job of the path, for users of its user group.

    Raises:
        NotFound: there is no such job or version, or the user may not see it.
    """
    named = "/" in reference or as_uuid(reference) is not None
    job = await read_job(
        state.store, reference if named else f"{user.username}/{reference}", query.version
    )
    if not (user.is_admin or job.group_name in user.groups):
        raise NotFound(f"there is no job {reference}")
    return job


VisibleJob = Annotated[JobVersion, Depends(visible_job)]


@router.post(PATH, status_code=201)
async def define(state: AppStateDep, user: UserDep, body: DefineJob) -> JobVersion:
    """Store a definition as the next version of the job of its name. The same as the last one adds none."""
    group_name = body.group_name or user.username
    await require_role_in_group(state, user, group_name, "write")
    definition = await asyncio.to_thread(definition_of, body.definition)
    return await define_job(state.store, user.user_id, group_name, definition)


@router.get(PATH)
async def list_all(
    state: AppStateDep, user: UserDep, query: Annotated[ListQuery, Query()]
) -> Page[JobInfo]:
    """List the jobs of the caller's user groups with their last versions, by user group and name."""
    return await list_jobs(state.store, user.user_id, after=query.after, limit=query.limit)


@router.get(ONE + "/versions")
async def versions(
    state: AppStateDep, user: UserDep, reference: str, query: Annotated[ListQuery, Query()]
) -> Page[JobInfo]:
    """List the versions of a job, the last one first."""
    job = await visible_job(state, user, reference, JobQuery())
    return await list_versions(state.store, job.job_id, after=query.after, limit=query.limit)


@router.get(ONE)
async def show(user: UserDep, job: VisibleJob) -> JobVersion:
    """Return one version of a job; by default the last one."""
    return shown_job(job, values=sees_values_in(user, job.group_name))


@router.delete(ONE, status_code=204)
async def delete(state: AppStateDep, user: UserDep, reference: str) -> None:
    """Delete a job with all its versions."""
    job = await visible_job(state, user, reference, JobQuery())
    await require_role_in_group(state, user, job.group_name, "write")
    await delete_job(state.store, job.job_id)
