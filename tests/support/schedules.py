"""Schedules on a real store, of which time passes by moving their rows into the past."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from unittest import mock
from uuid import UUID

from mitosis.contracts.control import Model
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedule_control import Tick, times_digest
from mitosis.contracts.schedules import ScheduleInfo
from mitosis.jobs.reading import definition_of
from mitosis.store.jobs.jobs import define_job
from mitosis.store.pg.database import Connection, Database
from mitosis.store.schedules.schedules import create_schedule, read_schedule
from mitosis.store.schedules.ticks import take_turn
from mitosis.store.store import Store
from tests.support.runs import Runs

AT_ONCE: dict[str, Any] = {"name": "etl", "steps": {"a": {"count": 0, "command": ["true"]}}}
"""Its runs have ended when they have started."""
STEPS = {"a": {"command": ["true"]}, "clean": {"after": {"a": "always"}, "command": ["true"]}}
WAITING: dict[str, Any] = {"name": "etl", "steps": STEPS}
"""Its runs last until they are cancelled."""


PASSES: tuple[LiteralString, ...] = (
    "UPDATE schedule_spans SET from_at = from_at - %(by)s, to_at = to_at - %(by)s,"
    " next_at = next_at - %(by)s",
    "UPDATE schedule_starts SET ended_at = ended_at - %(by)s,"
    " nominal_time = nominal_time - interval '100 years'",
    "UPDATE schedule_starts SET nominal_time = nominal_time + interval '100 years' - %(by)s",
    "UPDATE runs SET nominal_time = nominal_time - interval '100 years' WHERE schedule_id IS NOT NULL",
    "UPDATE runs SET nominal_time = nominal_time + interval '100 years' - %(by)s"
    " WHERE schedule_id IS NOT NULL",
)
"""In two steps, so that no two rows have one time for a moment."""


class Killed(BaseException):
    """The process has died."""


class Start(Model):
    """A row of the starts of a schedule."""

    nominal_time: datetime
    kind: str
    ended_at: datetime | None
    run_id: UUID | None
    reason: str | None


async def made(r: Runs, definition: Mapping[str, Any] = WAITING, **fields: Any) -> UUID:
    """Store a job and a schedule of it; by default daily, half a day from now.

    The hours that a test lets pass then never hold one of its times, at what time of day it may run.
    """
    job = await define_job(r.w.store, r.w.user_id, r.user, definition_of(dict(definition)))
    now = datetime.now(UTC)
    wanted = {
        "schedule_id": UUID(int=0),
        "name": "nightly",
        "group_name": r.user,
        "job_id": job.job_id,
        "job_name": "etl",
        "time_zone": "UTC",
        "overlap": Overlap.SKIP,
        "jitter": 0,
        "catch_up": 86400,
        "paused": False,
        "revision": 1,
        "carried_revision": 0,
        "version": "latest",
        "latest_version": 1,
        "owner": r.user,
        "created_at": now,
        "updated_at": now,
        **fields,
    }
    if not {"cron", "interval", "calendar"} & set(fields):
        wanted["cron"] = f"{now:%-M} {(now.hour + 12) % 24} * * *"
    return await create_schedule(r.w.store, r.w.user_id, ScheduleInfo(**wanted))


@dataclass
class Scheduled:
    """One schedule of a world of runs."""

    r: Runs
    id: UUID

    async def info(self) -> ScheduleInfo:
        return await read_schedule(self.r.w.store, str(self.id))

    async def tick(self, at: datetime, times: str | None = None) -> Tick:
        """Return what Temporal says at a time."""
        known = times_digest((await self.info()).timing()) if times is None else times
        return Tick(schedule_id=self.id, nominal_time=at, started_at=at, times=known)

    async def passes(self, time: timedelta) -> None:
        """Let time pass, a multiple of the interval: move what is stored into the past."""
        async with self.r.w.store.database.transaction() as connection:
            for statement in PASSES:
                await connection.execute(statement, {"by": time})

    async def starts(self) -> dict[datetime, Start]:
        """The starts by their times."""
        async with self.r.w.store.database.connection() as connection:
            rows = await connection.execute(
                "SELECT nominal_time, kind, ended_at, run_id, reason FROM schedule_starts ORDER BY id"
            )
            found = [Start.model_validate(row) for row in await rows.fetchall()]
        return {one.nominal_time: one for one in found}

    async def runs(self) -> dict[datetime, tuple[UUID, str]]:
        """Id and state of the runs by their times."""
        async with self.r.w.store.database.connection() as connection:
            rows = await connection.execute(
                "SELECT nominal_time, uuid, state FROM runs WHERE schedule_id IS NOT NULL"
            )
            found = await rows.fetchall()
        return {row["nominal_time"]: (row["uuid"], row["state"]) for row in found}


async def start_of(store: Store, schedule_id: UUID | str, at: datetime) -> UUID | None:
    """Ask for the run of a time, beside others, and return it if it could be started."""
    schedule = UUID(str(schedule_id))
    values: dict[str, Any] = {"schedule": schedule, "at": at}
    async with store.database.connection() as connection:
        await connection.execute(
            "INSERT INTO schedule_starts (schedule_id, nominal_time, kind, overlap)"
            " SELECT id, %(at)s, 'backfill', 'allow_all' FROM schedules WHERE uuid = %(schedule)s",
            values,
        )
        await take_turn(store, schedule)
        rows = await connection.execute(
            "SELECT x.run_id FROM schedule_starts AS x JOIN schedules AS s ON s.id = x.schedule_id"
            " WHERE s.uuid = %(schedule)s AND x.nominal_time = %(at)s",
            values,
        )
        row = await rows.fetchone()
    return None if row is None else row["run_id"]


@contextmanager
def killed_after(database: Database, commits: int) -> Iterator[None]:
    """Let the process die when so many transactions have been committed, or, if odd, within the next one."""
    whole, cut = divmod(commits, 2)
    begun = 0

    @asynccontextmanager
    async def transaction() -> AsyncIterator[Connection]:
        nonlocal begun
        begun += 1
        if begun > whole + 1:
            raise Killed
        async with real() as connection:
            yield connection
            if begun == whole + 1 and cut:
                raise Killed
        if begun == whole + 1:
            raise Killed

    real = database.transaction
    with mock.patch.object(database, "transaction", transaction):
        yield
