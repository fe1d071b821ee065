"""Starts the runs of schedules: one for each time and request (protocol P17).

The rows are the truth. A turn stores the times that are due as starts, then carries out starts that wait, in
the way of their overlap policies. Each start is marked in the transaction that creates its run. So a turn may
be taken by any process at any time, and end anywhere; what is left is in the rows.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from mitosis.contracts.control import Model
from mitosis.contracts.errors import (
    InvalidRequest,
    InvalidTransition,
    MitosisError,
    NotFound,
)
from mitosis.contracts.jobs import JobVersion
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.runs import CancelRun
from mitosis.contracts.schedule_control import Tick, TickAnswer
from mitosis.jobs.parameters import bind
from mitosis.jobs.progress import storable
from mitosis.jobs.reading import definition_of
from mitosis.jobs.rendering import Values, filled_value
from mitosis.store.jobs.jobs import read_job
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.processes.live import require_scheduled_runs
from mitosis.store.runs.advance import may_pass
from mitosis.store.runs.rows import nominal_values
from mitosis.store.runs.starting import NewRun, start_within
from mitosis.store.runs.stopping import stop_within, take_first_turns
from mitosis.store.schedules.deciding import Decision, Waiting, decide
from mitosis.store.schedules.due_times import Due, add_due_times
from mitosis.store.schedules.rights import check_rights
from mitosis.store.store import Store

SQL = load("schedules/ticks.sql")
MOST_STARTS = 20
"""So many runs are started in one turn; other schedules come before the next one."""
MOST_LOOKED_AT = 200
"""So many starts are looked at for one decision: those first that others give way to or wait for."""
MOST_FAILURES = 10
"""A start ends without a run after so many failures that do not pass: they are our fault, or of its row."""
MAX_REFUSAL = 1000
log = logging.getLogger(__name__)


class DueSchedule(Model):
    """A schedule that starts a run."""

    id: int
    schedule_id: UUID
    name: str
    group_name: str
    job_id: UUID
    version: int | None
    parameters: dict[str, Any]
    labels: tuple[str, ...]
    time_zone: str
    creator_id: UUID
    creator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Active:
    """A run of the schedule that has not ended, and is in the way of others."""

    run_id: UUID
    stopped: bool
    at_once: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A run to be created, with all its parameters."""

    new: NewRun
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What has become of a start."""

    run_id: UUID | None
    reason: str | None
    refusal: str | None


async def start_scheduled(store: Store, tick: Tick) -> TickAnswer:
    """Take a turn for a time of which Temporal has woken us; return its run, or why it has none.

    Raises:
        DatabaseUnavailable: try again.
    """
    due = await add_due_times(store, tick.schedule_id, tick)
    if due is None:
        return TickAnswer(reason="the schedule was deleted")
    await _carry_out(store, tick.schedule_id, due)
    given = {"schedule": due.schedule, "nominal_time": tick.nominal_time}
    async with store.database.connection() as connection:
        found = await fetch_one(connection, _Start, SQL["start"], given)
    if found is None:
        return TickAnswer(reason=due.refused or "this time was started or left out before")
    waits = f"it waits: {found.refusal}" if found.refusal else "it waits for its turn"
    return TickAnswer(run_id=found.run_id, reason=None if found.run_id else (found.reason or waits))


async def take_turn(store: Store, schedule_id: UUID) -> bool:
    """Start up to :data:`MOST_STARTS` runs that are due; if more are left, return True and poke the schedule.

    Raises:
        DatabaseUnavailable: try again.
    """
    due = await add_due_times(store, schedule_id)
    return False if due is None else await _carry_out(store, schedule_id, due)


async def _carry_out(store: Store, schedule_id: UUID, due: Due) -> bool:
    for _ in range(MOST_STARTS):
        if not await _carry_out_one(store, schedule_id, due.schedule):
            break
    else:
        return await _poke(store, schedule_id)
    return due.more and await _poke(store, schedule_id)


async def _carry_out_one(store: Store, schedule_id: UUID, number: int) -> bool:
    """Carry out the next start; return whether the one after it is to be looked at.

    A run gives way only to a start that may run now.
    """
    decision = await _decided(store, number)
    start = decision.start or decision.replacing
    if start is None:
        return False
    async with store.database.connection() as connection:
        row = await (
            await connection.execute(SQL["due_schedule"], {"schedule": schedule_id})
        ).fetchone()
    if row is None:
        return False
    try:
        prepared = await _prepared(store, DueSchedule.model_validate(row), start)
        if decision.start is None:
            await _cancel_others(store, number, start)
        else:
            await _start(store, number, start, prepared)
    except Exception as error:  # noqa: BLE001 of this one: others go on
        return await _failed(store, number, start, error)
    return decision.start is not None


async def _failed(store: Store, number: int, start: Waiting, error: Exception) -> bool:
    """Show why a start has no run; return whether the one after it is to be looked at now.

    It waits if the failure may pass. After any but a refusal it is tried again a few times.
    """
    passes, is_refusal, reason = may_pass(error), isinstance(error, MitosisError), _reason(error)
    log.warning(
        "schedule.start_refused",
        extra={"schedule": number, "passes": passes, "reason": reason},
        exc_info=None if passes or is_refusal else error,
    )
    given = {
        "schedule": number,
        "start": start.id,
        "reason": str(storable(reason))[:MAX_REFUSAL],
        "lasting": not passes,
        "most": 1 if is_refusal else MOST_FAILURES,
    }
    async with store.database.connection() as connection:
        await connection.execute(SQL["note_refused"], given)
    return is_refusal and not passes


def _reason(error: Exception) -> str:
    """Return what users may see of a failure: that of a statement without the values of its row."""
    if isinstance(error, MitosisError):
        return str(error)
    of_database = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return of_database or f"it cannot be started: {type(error).__name__}"


async def _decided(store: Store, number: int) -> Decision:
    """Decide about the starts that wait, and store which of them get no run: all, before another starts."""
    async with store.database.transaction() as connection:
        await connection.execute(SQL["lock"], {"schedule": number})
        while True:
            decision, _ = await _decide(connection, number)
            if not decision.skipped:
                return decision
            given = {
                "starts": [one.id for one, _ in decision.skipped],
                "reasons": [reason for _, reason in decision.skipped],
            }
            await connection.execute(SQL["skip"], given)


async def _decide(connection: Connection, number: int) -> tuple[Decision, Sequence[_Active]]:
    given = {"schedule": number, "limit": MOST_LOOKED_AT}
    waiting = await fetch_all(connection, Waiting, SQL["waiting"], given)
    if not waiting:
        return Decision(), ()
    active = await fetch_all(connection, _Active, SQL["active"], {"schedule": number})
    return decide(waiting, active=bool(active)), active


async def _cancel_others(store: Store, number: int, start: Waiting) -> None:
    """Cancel the runs that give way, once, as the overlap policy says, if the decision is still the same."""
    stopped = []
    async with store.database.transaction() as connection:
        await connection.execute(SQL["lock"], {"schedule": number})
        decision, active = await _decide(connection, number)
        if decision.replacing is None or decision.replacing.id != start.id:
            return  # it was paused or dropped, or another one replaces them
        await require_scheduled_runs(connection)
        at_once = decision.replacing.overlap is Overlap.TERMINATE_OTHER
        asked = CancelRun(
            reason="the next run of its schedule replaces it",
            grace_seconds=0.0 if at_once else None,
            skip_cleanup=at_once,
        )
        for run in active:
            if not run.stopped or (at_once and not run.at_once):
                with suppress(NotFound, InvalidTransition):
                    stopped.append(await stop_within(connection, run.run_id, asked))
    await take_first_turns(store, [run for run in stopped if run is not None])


async def _prepared(store: Store, due: DueSchedule, start: Waiting) -> _Prepared:
    """Return the run of a start, if it may run now: check what can be checked before it is created.

    Raises:
        MitosisError: why it may not.
    """
    job = await read_job(store, str(due.job_id), due.version)
    pinned = due.version is not None
    await check_rights(store, due.id, due.creator_id, job.version, is_pinned=pinned)
    return await asyncio.to_thread(_filled, due, start, job)  # a definition may have a megabyte


def _filled(due: DueSchedule, start: Waiting, job: JobVersion) -> _Prepared:
    at, zone = start.nominal_time, due.time_zone
    new = NewRun(
        user_id=due.creator_id,
        group_name=due.group_name,
        definition=definition_of(job.definition),
        parameters=run_parameters(due.parameters, at, zone, job),
        job_id=job.job_id,
        version=job.version,
        name=f"{due.name} {nominal_values(at, zone)['nominal_time']}",
        labels=due.labels,
        schedule=due.id,
        nominal_time=at,
        time_zone=zone,
    )
    return _Prepared(new=new, parameters=bind(new.definition, new.parameters))


async def _start(store: Store, number: int, start: Waiting, prepared: _Prepared) -> None:
    """Create the run and mark the start, in one transaction, if the decision is still the same."""
    async with store.database.transaction() as connection:
        await connection.execute(SQL["lock"], {"schedule": number})
        decision, _ = await _decide(connection, number)
        if decision.start is None or decision.start.id != start.id:
            return  # another process has carried it out, or its policy has changed
        run = await start_within(connection, store, prepared.new, prepared.parameters)
        given = {
            "start": start.id,
            "schedule": number,
            "run": run.run_id,
            "overlap": start.overlap.value,
        }
        await connection.execute(SQL["started"], given)


def run_parameters(
    parameters: Mapping[str, Any], nominal_time: datetime, time_zone: str, job: JobVersion
) -> dict[str, Any]:
    """Return the parameters of a run; texts in them may name its nominal time and the job.

    Raises:
        InvalidRequest: names the parameter, and what is wrong with a reference in it.
    """
    values = Values(
        run=nominal_values(nominal_time, time_zone),
        job={"name": job.name, "version": job.version},
    )
    try:
        return {
            name: filled_value(value, values, f"parameters.{name}")
            for name, value in parameters.items()
        }
    except ValueError as error:  # braces that are not closed
        raise InvalidRequest(str(error), field="parameters") from None


async def _poke(store: Store, schedule_id: UUID) -> bool:
    async with store.database.transaction() as connection:
        await poke(connection, schedules=[schedule_id])
    return True
