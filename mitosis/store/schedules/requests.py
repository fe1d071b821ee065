"""Stores the runs that users ask of a schedule beside its times: of now, or of past times.

Each is a row with its instant, stored in the transaction of the request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mitosis.contracts.errors import InvalidRequest, NotFound, TooLarge
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedules import (
    MAX_BACKFILL,
    MAX_WAITING,
    BackfillAnswer,
    BackfillSchedule,
    ScheduleInfo,
    TriggerAnswer,
)
from mitosis.jobs.schedule_times import times_between
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("schedules/requests.sql")


@dataclass(frozen=True, slots=True)
class _Moment:
    at: datetime


@dataclass(frozen=True, slots=True)
class _Number:
    id: int


@dataclass(frozen=True, slots=True)
class _Others:
    waiting: int


async def trigger_schedule(
    store: Store, schedule_id: UUID, overlap: Overlap | None
) -> TriggerAnswer:
    """Ask for a run of now: of this second, so that a repeated call starts no second one.

    Raises:
        NotFound: the schedule was deleted.
        TooLarge: :data:`MAX_WAITING` runs of it wait.
    """
    async with store.database.transaction() as connection:
        at = await _now(connection)
        await _ask(connection, schedule_id, "trigger", [at], overlap)
    return TriggerAnswer(nominal_time=at)


async def backfill_schedule(
    store: Store, schedule: ScheduleInfo, asked: BackfillSchedule
) -> BackfillAnswer:
    """Ask for the runs of past times, unless it is a dry run; return the times that have none yet.

    Raises:
        InvalidRequest: the range ends in the future, or has no time of the schedule.
        TooLarge: it has too many, or :data:`MAX_WAITING` runs of the schedule would wait.
        NotFound: the schedule was deleted.
    """
    async with store.database.transaction() as connection:
        if asked.last > await _now(connection):
            raise InvalidRequest(
                "must not be in the future: only past times have no run", field="last"
            )
        times = times_between(schedule.timing(), asked.first, asked.last, MAX_BACKFILL + 1)
        if not times:
            raise InvalidRequest("the schedule has no time in this range", field="first")
        if len(times) > MAX_BACKFILL:
            raise TooLarge(
                f"the range has more than {MAX_BACKFILL} times: give it in parts", field="last"
            )
        given = {"schedule": schedule.schedule_id, "from_at": times[0], "to_at": times[-1]}
        known = await fetch_all(connection, _Moment, SQL["nominal_times"], given)
        missing = sorted(set(times) - {one.at for one in known})
        if missing and not asked.dry_run:
            overlap = Overlap(asked.overlap)
            await _ask(connection, schedule.schedule_id, "backfill", missing, overlap)
    return BackfillAnswer(times=tuple(missing), have_runs=len(times) - len(missing))


async def _now(connection: Connection) -> datetime:
    now = await fetch_one(connection, _Moment, SQL["now"], {})
    assert now is not None, "a SELECT without FROM has one row"  # noqa: S101
    return now.at


async def _ask(
    connection: Connection,
    schedule_id: UUID,
    kind: str,
    times: Sequence[datetime],
    overlap: Overlap | None,
) -> None:
    found = await fetch_one(connection, _Number, SQL["keep"], {"schedule": schedule_id})
    if found is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    values = {
        "schedule": found.id,
        "kind": kind,
        "times": list(times),
        "overlap": None if overlap is None else overlap.value,
    }
    others = await fetch_one(connection, _Others, SQL["others_waiting"], values)
    waiting = 0 if others is None else others.waiting
    if waiting + len(times) > MAX_WAITING:
        raise TooLarge(
            f"{waiting:,} runs of the schedule wait already, and with these {len(times):,} there would be"
            f" more than {MAX_WAITING:,}: wait until some have started, or drop them with"
            " `mitosis job schedule pause --drop`",
            limit=MAX_WAITING,
        )
    await connection.execute(SQL["ask"], values)
    await poke(connection, schedules=[schedule_id])
