"""Stores, finds and deletes jobs. A version never changes; the same definition as the last adds none."""

from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Json

from mitosis.contracts.errors import Conflict, NotFound
from mitosis.contracts.http import Page
from mitosis.contracts.ids import as_uuid
from mitosis.contracts.jobs import JobInfo, JobVersion
from mitosis.jobs.canonical import digest, plain_fields
from mitosis.jobs.definition import JobDefinition
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("jobs/jobs.sql")
MAX_PAGE = 500
AFTER_LAST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Locked:
    id: int
    uuid: UUID
    latest: int


@dataclass(frozen=True, slots=True)
class _Named:
    name: str


@dataclass(frozen=True, slots=True)
class _Compared:
    same: bool


async def define_job(
    store: Store, user_id: UUID, group_name: str, definition: JobDefinition
) -> JobVersion:
    """Store the definition as the next version of the job of its name, unless it is the same as the last.

    Raises:
        NotFound: there is no such user group.
    """
    fields = plain_fields(definition)
    values: dict[str, object] = {
        "group_name": group_name,
        "name": definition.name,
        "user": user_id,
        "digest": digest(definition),
        "definition": Json(fields),
    }
    async with store.database.transaction() as connection:
        await connection.execute(SQL["add_job"], values)
        job = await fetch_one(connection, _Locked, SQL["lock_job"], values)
        if job is None:
            raise NotFound("no such user group", field="group_name")
        values |= {"job": job.id, "latest": job.latest}
        compared = await fetch_one(connection, _Compared, SQL["is_last"], values)
        is_new = compared is None or not compared.same
        if is_new:
            await connection.execute(SQL["add_version"], values)
    stored = await read_job(store, str(job.uuid), job.latest + is_new)
    return stored.model_copy(update={"created": is_new})


async def read_job(store: Store, reference: str, version: int | None = None) -> JobVersion:
    """Return a version of the job with this id or ``USERGROUP/NAME``; by default the last one.

    Raises:
        NotFound: there is no such job, or it has no such version.
    """
    group_name, _, name = reference.partition("/")
    values = {
        "job": as_uuid(reference),
        "group_name": group_name,
        "name": name,
        "version": version,
    }
    async with store.database.connection() as connection:
        found = await fetch_one(connection, JobVersion, SQL["job"], values)
    if found is None:
        which = "" if version is None else f" with a version {version}"
        raise NotFound(f"there is no job {reference}{which}")
    return found


async def list_jobs(
    store: Store, viewer_id: UUID, *, after: str | None = None, limit: int = 100
) -> Page[JobInfo]:
    """Return the last versions of the jobs of the user's groups (an admin sees all), by group and name."""
    size = page_limit(limit, MAX_PAGE)
    key = decode_cursor("jobs", after, str, str) if after else ("", "")
    values = {"viewer": viewer_id, "limit": size + 1, "after_group": key[0], "after_name": key[1]}
    async with store.database.connection() as connection:
        found = await fetch_all(connection, JobInfo, SQL["jobs"], values)
    items = found[:size]
    last = items[-1] if len(found) > size else None
    cursor = None if last is None else encode_cursor("jobs", last.group_name, last.name)
    return Page(items=items, next=cursor)


async def list_versions(
    store: Store, job_id: UUID, *, after: str | None = None, limit: int = 100
) -> Page[JobInfo]:
    """Return the versions of a job, the last one first."""
    size = page_limit(limit, MAX_PAGE)
    this = f"versions of {job_id}"
    (before,) = decode_cursor(this, after, int) if after else (AFTER_LAST,)
    values = {"job": job_id, "before": before, "limit": size + 1}
    async with store.database.connection() as connection:
        found = await fetch_all(connection, JobInfo, SQL["versions"], values)
    items = found[:size]
    cursor = encode_cursor(this, items[-1].version) if len(found) > size else None
    return Page(items=items, next=cursor)


async def delete_job(store: Store, job_id: UUID) -> None:
    """Delete a job with all its versions. Idempotent.

    Raises:
        Conflict: it has schedules.
    """
    given = {"job": job_id}
    async with store.database.transaction() as connection:
        await connection.execute(SQL["lock_by_id"], given)  # a new schedule of it waits
        found = await fetch_all(connection, _Named, SQL["schedules_of"], given)
        if found:
            names = [one.name for one in found]
            which = f"schedule {names[0]}" if len(names) == 1 else f"schedules {', '.join(names)}"
            raise Conflict(
                f"the job has the {which}: delete each first, with"
                f" `mitosis job schedule delete {names[0]}`",
                schedules=names,
            )
        await connection.execute(SQL["delete_job"], given)
