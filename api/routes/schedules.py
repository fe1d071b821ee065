"""Schedules of jobs: create, list, show, change, pause, resume, trigger, backfill, delete."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from api.deps import AppStateDep, UserDep, require_role_in_group
from api.environments import sees_values_in, shown_schedule
from api.limits import LimitedRoute
from api.routes.jobs import visible_job
from mitosis.contracts.accounts import User
from mitosis.contracts.errors import Conflict, InvalidRequest, NotFound, PermissionDenied
from mitosis.contracts.http import Page
from mitosis.contracts.ids import as_uuid
from mitosis.contracts.jobs import JobQuery, JobVersion
from mitosis.contracts.schedule_control import UNREADABLE
from mitosis.contracts.schedules import (
    LATEST,
    SHOWN_TIMES,
    BackfillAnswer,
    BackfillSchedule,
    CreateSchedule,
    PauseSchedule,
    ResumeSchedule,
    ScheduleInfo,
    ScheduleQuery,
    TriggerAnswer,
    TriggerSchedule,
    UpdateSchedule,
)
from mitosis.jobs.parameters import bind, check_size
from mitosis.jobs.reading import definition_of
from mitosis.jobs.schedule_times import next_times
from mitosis.store.jobs.jobs import read_job
from mitosis.store.schedules.requests import backfill_schedule, trigger_schedule
from mitosis.store.schedules.schedules import (
    change_schedule,
    create_schedule,
    delete_schedule,
    list_schedules,
    pause_schedule,
    read_schedule,
    resume_schedule,
)
from mitosis.store.schedules.ticks import run_parameters

router = APIRouter(tags=["schedules"], route_class=LimitedRoute)
PATH = "/schedules"
ONE = PATH + "/{reference:task_group}"
NO_SCHEDULE = UUID(int=0)
TIMINGS = ("cron", "interval", "calendar")
CLEARED = ("start_at", "end_at", "note")


async def visible_schedule(state: AppStateDep, user: UserDep, reference: str) -> ScheduleInfo:
    """Return the schedule of the path, for users of its user group.

    Raises:
        NotFound: there is no such schedule, or the user may not see it.
    """
    named = "/" in reference or as_uuid(reference) is not None
    found = await read_schedule(state.store, reference if named else f"{user.username}/{reference}")
    if not (user.is_admin or found.group_name in user.groups):
        raise NotFound(f"there is no schedule {reference}")
    return found


async def writable_schedule(state: AppStateDep, user: UserDep, reference: str) -> ScheduleInfo:
    """Return the schedule of the path, for users who may change it.

    Raises:
        NotFound: as for :func:`visible_schedule`.
        PermissionDenied: the user may only read it.
    """
    found = await visible_schedule(state, user, reference)
    await require_role_in_group(state, user, found.group_name, "write")
    return found


VisibleSchedule = Annotated[ScheduleInfo, Depends(visible_schedule)]
WritableSchedule = Annotated[ScheduleInfo, Depends(writable_schedule)]


async def owned_schedule(user: UserDep, schedule: WritableSchedule) -> ScheduleInfo:
    """Return the schedule of the path, for its owner and for admins of its user group.

    Raises:
        NotFound, PermissionDenied: as for :func:`writable_schedule`; or another user is the owner.
    """
    is_admin = user.is_admin or user.groups.get(schedule.group_name) == "admin"
    if not (is_admin or schedule.owner == user.username):
        raise PermissionDenied(
            f"only {schedule.owner}, with whose rights the schedule starts runs, and admins of"
            f" {schedule.group_name} may do this; you may pause it",
            needed="admin",
        )
    return schedule


OwnedSchedule = Annotated[ScheduleInfo, Depends(owned_schedule)]


@router.post(PATH, status_code=201)
async def create(state: AppStateDep, user: UserDep, body: CreateSchedule) -> ScheduleInfo:
    """Store a schedule, even while Temporal is down. The answer, also of a dry run, has its next times.

    Its runs have the rights of the caller, and are of the last version of the job now, if no other is given.
    """
    version = body.version if isinstance(body.version, int) else None
    job = await visible_job(state, user, body.job, JobQuery(version=version))
    await require_role_in_group(state, user, job.group_name, "write")
    last = job if version is None else await read_job(state.store, str(job.job_id))
    now = datetime.now(UTC)
    fields = body.model_dump(exclude={"job", "dry_run", "interval", "calendar"})
    wanted = ScheduleInfo(
        **{**fields, "name": body.name or job.name, "version": body.version or job.version},
        interval=body.interval,
        calendar=body.calendar,
        schedule_id=NO_SCHEDULE,
        group_name=job.group_name,
        job_id=job.job_id,
        job_name=job.name,
        latest_version=last.version,
        accepted_version=job.version if body.version == LATEST else None,
        revision=1,
        carried_revision=0,
        owner=user.username,
        created_at=now,
        updated_at=now,
    )
    await asyncio.to_thread(check, wanted, job)  # a definition may have a megabyte
    if body.dry_run:
        return _with_times(wanted)
    added = await create_schedule(state.store, user.user_id, wanted)
    return await _shown(state, user, added)


@router.get(PATH)
async def list_all(
    state: AppStateDep, user: UserDep, query: Annotated[ScheduleQuery, Query()]
) -> Page[ScheduleInfo]:
    """List the schedules of the caller's user groups, by user group and name."""
    page = await list_schedules(state.store, user.user_id, query)
    shown = [shown_schedule(one, values=sees_values_in(user, one.group_name)) for one in page.items]
    items = await asyncio.to_thread(lambda: [_with_times(one) for one in shown])  # up to 500
    return page.model_copy(update={"items": items})


@router.post(ONE + "/pause")
async def pause(
    state: AppStateDep,
    user: UserDep,
    schedule: WritableSchedule,
    body: PauseSchedule | None = None,
) -> ScheduleInfo:
    """Start no runs at its times and of backfills until it is resumed. Times that pass are not made up for.

    What waits to start goes on waiting, or is dropped by the owner or an admin of the user group.
    """
    asked = body or PauseSchedule()
    if asked.drop:
        await owned_schedule(user, schedule)
    await pause_schedule(state.store, schedule.schedule_id, asked.note, drop=asked.drop)
    return await _shown(state, user, schedule.schedule_id)


@router.post(ONE + "/resume")
async def resume(
    state: AppStateDep,
    user: UserDep,
    schedule: OwnedSchedule,
    body: ResumeSchedule | None = None,
) -> ScheduleInfo:
    """Start runs at its times again, from now on, and those that have waited."""
    await resume_schedule(state.store, schedule.schedule_id, None if body is None else body.note)
    return await _shown(state, user, schedule.schedule_id)


@router.post(ONE + "/trigger", status_code=202)
async def trigger(
    state: AppStateDep, schedule: OwnedSchedule, body: TriggerSchedule | None = None
) -> TriggerAnswer:
    """Ask for a run of now, also of a paused schedule. Calls within one second ask for the same run."""
    asked = body or TriggerSchedule()
    return await trigger_schedule(state.store, schedule.schedule_id, asked.overlap)


@router.post(ONE + "/backfill", status_code=202)
async def backfill(
    state: AppStateDep, schedule: OwnedSchedule, body: BackfillSchedule
) -> BackfillAnswer:
    """Ask for the runs of past times. A time that has a run gets no second one."""
    found = await backfill_schedule(state.store, schedule, body)
    zone = schedule.timing().zone
    return found.model_copy(update={"times": tuple(one.astimezone(zone) for one in found.times)})


@router.get(ONE)
async def show(user: UserDep, schedule: VisibleSchedule) -> ScheduleInfo:
    """Return one schedule with its next times. Readers see no values of parameters."""
    values = sees_values_in(user, schedule.group_name)
    return _with_times(shown_schedule(schedule, values=values))


@router.patch(ONE)
async def update(
    state: AppStateDep, user: UserDep, schedule: OwnedSchedule, body: UpdateSchedule
) -> ScheduleInfo:
    """Change a schedule. Times from now on are those of the changed one.

    Its runs have the rights of the caller from then on.
    """
    wanted = changed(schedule, body, user.username)
    version = wanted.version if isinstance(wanted.version, int) else None
    job = await read_job(state.store, str(wanted.job_id), version)
    await asyncio.to_thread(check, wanted, job)
    if body.dry_run:
        return _with_times(wanted)
    await change_schedule(state.store, user.user_id, wanted)
    return await _shown(state, user, schedule.schedule_id)


@router.delete(ONE, status_code=204)
async def delete(state: AppStateDep, schedule: OwnedSchedule) -> None:
    """Delete a schedule. Its runs stay, and running ones go on."""
    await delete_schedule(state.store, schedule.schedule_id)


def changed(schedule: ScheduleInfo, body: UpdateSchedule, owner: str) -> ScheduleInfo:
    """Return the schedule with the fields that are given, for the user who changes it.

    Raises:
        Conflict: it has another revision than the call is for.
        InvalidRequest: the accepted version does not exist, or the schedule follows none.
    """
    if body.revision not in (None, schedule.revision):
        raise Conflict("the schedule was changed at the same time: look at it again")
    given: dict[str, Any] = {
        name: getattr(body, name)
        for name in body.model_fields_set - {"dry_run", "revision"}
        if name in CLEARED or getattr(body, name) is not None
    }
    if any(name in given for name in TIMINGS):
        given = {**dict.fromkeys(TIMINGS), **given}
    wanted = schedule.model_copy(update={**given, "owner": owner})
    accepted = _accepted(schedule, wanted, body.accepted_version)
    return wanted.model_copy(update={"accepted_version": accepted})


def _accepted(before: ScheduleInfo, wanted: ScheduleInfo, given: int | None) -> int | None:
    """Return up to which version all run with the rights of the owner: those that the owner knew."""
    if wanted.version != LATEST:
        if given is not None:
            raise InvalidRequest(f"belongs to the version {LATEST}", field="accepted_version")
        return None
    if given is not None and given > wanted.latest_version:
        last = wanted.latest_version
        raise InvalidRequest(f"the last version is {last}", field="accepted_version")
    is_chosen = (before.version, before.owner) != (wanted.version, wanted.owner)
    return given or (wanted.latest_version if is_chosen else before.accepted_version)


def check(wanted: ScheduleInfo, job: JobVersion) -> None:
    """Check a schedule as a whole.

    Raises:
        InvalidRequest: names the field.
    """
    given = [name for name in TIMINGS if getattr(wanted, name) is not None]
    if len(given) != 1:
        what = f"not {' and '.join(given)}" if given else "none is given"
        raise InvalidRequest(f"give exactly one of {', '.join(TIMINGS)}: {what}", field="cron")
    start, end = wanted.start_at, wanted.end_at
    if start is not None and end is not None and end <= start:
        raise InvalidRequest("must be after start_at", field="end_at")
    now = datetime.now(UTC)
    times = next_times(wanted.timing(), now, 1)
    if not times:
        field = "end_at" if end is not None else given[0]
        raise InvalidRequest(
            "no time is to come: the schedule would never start a run", field=field
        )
    check_size(wanted.parameters, "the parameters of a schedule", "parameters")
    values = run_parameters(wanted.parameters, times[0], wanted.time_zone, job)
    bind(definition_of(job.definition), values)


def _with_times(schedule: ScheduleInfo) -> ScheduleInfo:
    if schedule.paused:
        return schedule
    try:
        times = next_times(schedule.timing(), datetime.now(UTC), SHOWN_TIMES)
    except UNREADABLE:
        return schedule  # its problem says why
    return schedule.model_copy(update={"next_times": tuple(times)})


async def _shown(state: AppStateDep, user: User, schedule_id: UUID) -> ScheduleInfo:
    found = await read_schedule(state.store, str(schedule_id))
    return _with_times(shown_schedule(found, values=sees_values_in(user, found.group_name)))
