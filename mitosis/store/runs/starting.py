"""Starts runs: one transaction stores the run, its task groups and the tasks of its first steps.

Temporal is not asked: the outbox starts the workflow that watches the run.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Json

from mitosis.contracts.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
)
from mitosis.contracts.lifecycle import RUN, RunState, StepState
from mitosis.contracts.runs import RerunRun
from mitosis.jobs.canonical import digest, plain_fields
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.order import layers_of
from mitosis.jobs.parameters import bind
from mitosis.store.missing import require_run
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.processes.live import require_scheduled_runs
from mitosis.store.runs.advance import carry_on
from mitosis.store.runs.rows import definition_of, lock_run
from mitosis.store.store import Store

SQL = load("runs/starting.sql")
UNFINISHED = frozenset({StepState.FAILED, StepState.CANCELLED})
KEPT = frozenset({StepState.SUCCEEDED, StepState.SKIPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What is started, and for whom. The caller has checked permission."""

    user_id: UUID
    group_name: str
    definition: JobDefinition
    parameters: Mapping[str, Any]
    """As given: without the defaults."""
    job_id: UUID | None = None
    version: int | None = None
    name: str | None = None
    labels: Collection[str] = ()
    idempotency_key: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The call as it was made: a replay of its key asks for the same."""
    rerun_of: UUID | None = None
    schedule: int | None = None
    """The schedule that starts it; it has one run for each nominal time."""
    nominal_time: datetime | None = None
    time_zone: str | None = None


@dataclass(frozen=True, slots=True)
class StartedRun:
    run_id: UUID
    replayed: bool


@dataclass(frozen=True, slots=True)
class _Added:
    id: int
    uuid: UUID


@dataclass(frozen=True, slots=True)
class _Known:
    uuid: UUID
    asked: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A run that is run again."""

    id: int
    uuid: UUID
    state: RunState
    definition: dict[str, Any]
    digest: str
    parameters: dict[str, Any]
    job_name: str
    version: int | None
    name: str | None
    labels: list[str] = field(default_factory=list)
    job_id: UUID | None = None
    group_name: str
    deleting: bool
    nominal_time: datetime | None
    time_zone: str | None


@dataclass(frozen=True, slots=True)
class _StepState:
    name: str
    state: StepState
    present: bool


async def start_run(store: Store, new: NewRun) -> StartedRun:
    """Start a run, or answer with the one that its idempotency key has started before.

    Raises:
        InvalidRequest: a parameter is wrong, or a hook cannot be filled.
        TooLarge: the parameters are too large.
        NotFound: there is no such user group or standing task group.
        PermissionDenied: the user may not submit to a standing task group.
        IdempotencyKeyReused: another run was started with the key.
        UpgradeInProgress: an older process runs that does not know a kind of group or task, or runs of
            schedules.
    """
    if (known := await _known(store, new)) is not None:
        return known
    parameters = bind(new.definition, new.parameters)
    async with store.database.transaction() as connection:
        return await start_within(connection, store, new, parameters)


async def start_within(
    connection: Connection, store: Store, new: NewRun, parameters: Mapping[str, Any]
) -> StartedRun:
    """Start a run in the caller's transaction, with all its parameters, or answer with the one that is there.

    Raises:
        MitosisError: as :func:`start_run`.
    """
    added = await _add(connection, new, parameters)
    if isinstance(added, StartedRun):
        return added
    await _begin(connection, store, added.id)
    return StartedRun(added.uuid, replayed=False)


async def rerun(store: Store, run_id: UUID, user_id: UUID, asked: RerunRun) -> StartedRun:
    """Start a new run of an ended one, which takes over the steps that need not run again.

    Raises:
        NotFound: there is no such run.
        Conflict: it has not ended, or is being deleted.
        IdempotencyKeyReused, PermissionDenied, UpgradeInProgress: as :func:`start_run`.
    """
    async with store.database.transaction() as connection:
        found = await fetch_one(connection, _Ended, SQL["lock_ended"], {"run": run_id})
        earlier = require_run(found, run_id)
        if earlier.state not in RUN.terminal:
            raise Conflict(
                f"the run is {earlier.state}: wait until it has ended, or cancel it",
                state=earlier.state.value,
            )
        if earlier.deleting:
            raise Conflict("the run is being deleted", state=earlier.state.value)
        definition = definition_of(earlier.digest, earlier.definition)
        new = NewRun(
            user_id=user_id,
            group_name=earlier.group_name,
            definition=definition,
            parameters=earlier.parameters,
            job_id=earlier.job_id,
            version=earlier.version,
            name=asked.name or earlier.name,
            labels=earlier.labels,
            idempotency_key=asked.idempotency_key,
            asked={"rerun": str(earlier.uuid), **asked.model_dump(mode="json")},
            rerun_of=earlier.uuid,
            nominal_time=earlier.nominal_time,
            time_zone=earlier.time_zone,
        )
        added = await _add(connection, new, earlier.parameters)
        if isinstance(added, StartedRun):
            return added
        if not asked.all_steps:
            await _take_steps(connection, definition, earlier.id, added.id)
        await _begin(connection, store, added.id)
    return StartedRun(added.uuid, replayed=False)


def kept_steps(definition: JobDefinition, states: Mapping[str, StepState]) -> Sequence[str]:
    """Return the steps that a rerun takes over: ended well, and so has all that they come after."""
    kept: list[str] = []
    for layer in layers_of(definition.steps):
        for name in layer:
            before = definition.steps[name].after
            if states.get(name) in KEPT and all(one in kept for one in before):
                kept.append(name)
    return kept


def reused_steps(
    definition: JobDefinition, states: Mapping[str, StepState], kept: Collection[str]
) -> Sequence[str]:
    """Return the arrays of which a rerun repeats only tasks that have not succeeded.

    Their items are the same again, since all that they come after is taken over, or follows one by one.
    """
    reused: list[str] = []
    for layer in layers_of(definition.steps):
        for name in layer:
            step = definition.steps[name]
            same = all(one in kept or (one in step.each_of and one in reused) for one in step.after)
            if states.get(name) in UNFINISHED and step.is_array and same:
                reused.append(name)
    return reused


async def started_before(
    store: Store, user_id: UUID, key: str | None, asked: Mapping[str, Any]
) -> StartedRun | None:
    """Return the run that a call with this key has started, also if its job was deleted since."""
    if key is None or "\0" in key:
        return None
    values = {"user": user_id, "key": key, "asked": _digest(asked)}
    async with store.database.connection() as connection:
        known = await fetch_one(connection, _Known, SQL["runs_with_key"], values)
    return None if known is None else StartedRun(known.uuid, replayed=True)


async def _known(store: Store, new: NewRun) -> StartedRun | None:
    """Return the run that the key has started before: its job may have another version now."""
    if new.idempotency_key is None:
        return None
    if "\0" in new.idempotency_key:
        raise InvalidRequest("must not contain a NUL byte", field="idempotency_key")
    values = {"group_name": new.group_name, "key": new.idempotency_key}
    async with store.database.connection() as connection:
        known = await fetch_one(connection, _Known, SQL["run_with_key"], values)
    return None if known is None else _replayed(known, _digest(new.asked))


def _replayed(known: _Known, asked: bytes) -> StartedRun:
    if known.asked != asked:
        raise IdempotencyKeyReused(
            "another run was started with this idempotency key; nothing is started now: use another"
            " key",
            field="idempotency_key",
        )
    return StartedRun(known.uuid, replayed=True)


async def _take_steps(
    connection: Connection, definition: JobDefinition, earlier: int, number: int
) -> None:
    rows = await fetch_all(connection, _StepState, SQL["ended_steps"], {"run": earlier})
    kept = kept_steps(definition, {row.name: row.state for row in rows if row.present})
    given = {"run": number, "earlier": earlier, "names": list(kept)}
    await connection.execute(SQL["take_steps"], given)
    reused = reused_steps(definition, {row.name: row.state for row in rows}, kept)
    await connection.execute(SQL["reuse_steps"], given | {"names": list(reused)})


async def _begin(connection: Connection, store: Store, number: int) -> None:
    loaded = await lock_run(connection, number)
    if loaded is None:
        raise NotFound("the run was deleted")
    await carry_on(connection, store, loaded, is_new=True)


async def _add(
    connection: Connection, new: NewRun, parameters: Mapping[str, Any]
) -> _Added | StartedRun:
    """Store the run and its steps, or return the one that has its key."""
    if new.schedule is not None or new.nominal_time is not None:
        await require_scheduled_runs(connection)
    fields = plain_fields(new.definition)
    asked = _digest(new.asked)
    values = {
        "user": new.user_id,
        "group_name": new.group_name,
        "job": new.job_id,
        "job_name": new.definition.name,
        "version": new.version,
        "digest": digest(new.definition),
        "definition": Json(fields),
        "parameters": Json(parameters),
        "name": new.name,
        "labels": list(new.labels),
        "key": new.idempotency_key,
        "asked": asked if new.idempotency_key is not None else None,
        "rerun_of": new.rerun_of,
        "max_concurrent": new.definition.max_concurrent_runs,
        "schedule": new.schedule,
        "nominal_time": new.nominal_time,
        "time_zone": new.time_zone,
    }
    added = await fetch_one(connection, _Added, SQL["add_run"], values)
    if added is None and new.schedule is not None:
        found = await run_of_time(connection, new.schedule, new.nominal_time)
        if found is not None:
            return StartedRun(found, replayed=True)
    if added is None:
        known = await fetch_one(connection, _Known, SQL["run_with_key"], values)
        if known is None:
            raise NotFound("no such user group", field="group_name")
        return _replayed(known, asked)
    order = layers_of(new.definition.steps)
    given = {
        "run": added.id,
        "names": [name for layer in order for name in layer],
        "layers": [number for number, layer in enumerate(order) for _ in layer],
    }
    await connection.execute(SQL["add_steps"], given)
    return added


async def run_of_time(
    connection: Connection, schedule: int, nominal_time: datetime | None
) -> UUID | None:
    """Return the run of a schedule for a time."""
    given = {"schedule": schedule, "nominal_time": nominal_time}
    found = await fetch_one(connection, _Added, SQL["run_of_time"], given)
    return None if found is None else found.uuid


def _digest(asked: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest()
