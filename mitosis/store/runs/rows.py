"""The rows of a run: what is read under its lock, and how its steps are written back."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mitosis.contracts.lifecycle import RunState, StepState
from mitosis.contracts.runs import StopKind
from mitosis.contracts.schedules import zone_of
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.groups import GroupKey
from mitosis.jobs.progress import StepProgress
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load

SQL = load("runs/rows.sql")
MOST_ENDS = 50_000
"""So many ends of tasks are counted by one transaction."""
KEPT_DEFINITIONS = 64
TURN = SQL["turn"]
"""Condition on a run ``r``: if it is pending, it may start."""


@dataclass(slots=True, kw_only=True)
class RunRow:
    """A run whose row the transaction holds."""

    id: int
    uuid: UUID
    state: RunState
    definition: dict[str, Any]
    digest: str
    parameters: dict[str, Any]
    job_name: str
    version: int | None
    stopped_by: StopKind | None
    reason: str | None
    skip_cleanup: bool
    overdue: bool | None
    creator_id: UUID
    group_name: str
    user_group_id: int
    now: datetime
    """Of the transaction."""
    schedule_id: int | None
    nominal_time: datetime | None
    time_zone: str | None

    @property
    def shown(self) -> Mapping[str, Any]:
        """What templates may name as ``run``."""
        return {"id": str(self.uuid), **nominal_values(self.nominal_time, self.time_zone)}


@dataclass(slots=True, kw_only=True)
class RunGroup:
    """One task group of a run."""

    name: str
    kind: str
    task_group: UUID
    standing: bool
    closed: bool

    @property
    def may_close(self) -> bool:
        """Whether it closes when no step needs it."""
        return not (self.standing or self.closed)


@dataclass(slots=True)
class Loaded:
    """A run with its steps, and what the transaction changes of them."""

    run: RunRow
    definition: JobDefinition
    steps: Sequence[StepProgress]
    groups: dict[GroupKey, RunGroup]
    before: Mapping[int, Any] = field(default_factory=dict)
    counted: bool = False
    """Ends of tasks were counted, maybe not all."""
    by_name: Mapping[str, StepProgress] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {step.name: step for step in self.steps}

    def deadline(self, timeout: timedelta | None) -> datetime | None:
        """Return when something that begins now is over."""
        return None if timeout is None else self.run.now + timeout


def nominal_values(nominal_time: datetime | None, time_zone: str | None) -> dict[str, str | None]:
    """Return the time for which a schedule has started a run, and its date, in the zone of the schedule."""
    if nominal_time is None:
        return {"nominal_time": None, "nominal_date": None}
    local = nominal_time.astimezone(zone_of(time_zone or "UTC"))
    return {"nominal_time": local.isoformat(), "nominal_date": local.date().isoformat()}


_definitions: dict[str, JobDefinition] = {}


def definition_of(digest: str, fields: Mapping[str, Any]) -> JobDefinition:
    """Return a stored definition as a model; the last ones are kept, for they never change."""
    found = _definitions.get(digest)
    if found is None:
        found = JobDefinition.model_validate(fields)
        if len(_definitions) >= KEPT_DEFINITIONS:
            _definitions.pop(next(iter(_definitions)))
        _definitions[digest] = found
    return found


async def lock_run(connection: Connection, number: int) -> Loaded | None:
    """Lock a run that has not ended, count the ends of its tasks, and read its steps.

    None: it has ended, or another transaction holds it.
    """
    run = await fetch_one(connection, RunRow, SQL["lock_run"], {"run": number})
    if run is None:
        return None
    counted = await count_ends(connection, number)
    steps = await fetch_all(connection, StepProgress, SQL["steps"], {"run": number})
    groups = await fetch_all(connection, RunGroup, SQL["groups"], {"run": number})
    return Loaded(
        run=run,
        definition=definition_of(run.digest, run.definition),
        steps=steps,
        groups={GroupKey(one.name, one.kind): one for one in groups},
        before={step.id: _columns(step) for step in steps},
        counted=counted > 0,
    )


async def count_ends(connection: Connection, number: int) -> int:
    """Count up to :data:`MOST_ENDS` ends of tasks in the steps of a run whose row is locked."""
    given = {"run": number, "limit": MOST_ENDS}
    return (await connection.execute(SQL["count_ends"], given)).rowcount


async def lock_groups(connection: Connection, groups: Collection[UUID]) -> None:
    """Lock all task groups that the transaction writes to, by number."""
    await connection.execute(SQL["lock_groups"], {"groups": list(groups)})


async def notify_run(connection: Connection, number: int, *, changed: bool, due: bool) -> None:
    """Wake who waits for a change of the run; API processes too if more is left to do."""
    await connection.execute(SQL["notify"], {"run": number, "changed": changed, "due": due})


async def poke_run(connection: Connection, number: int) -> None:
    """Have the workflow of the run look."""
    await connection.execute(SQL["poke"], {"run": number})


async def poke_schedule(connection: Connection, number: int) -> None:
    """Have a schedule start the run that has waited for the end of another, if there is one."""
    await connection.execute(SQL["poke_schedule"], {"schedule": number})


async def save_steps(connection: Connection, loaded: Loaded) -> bool:
    """Write the steps that have changed; return whether some have."""
    changed = [
        columns
        for step in loaded.steps
        if (columns := _columns(step)) != loaded.before.get(step.id)
    ]
    if changed:
        await connection.execute(SQL["save_steps"], {"steps": json.dumps(changed)})
    return bool(changed)


def _columns(step: StepProgress) -> dict[str, Any]:
    return {
        "id": step.id,
        "state": step.state.value,
        "task_group": None if step.task_group is None else str(step.task_group),
        "total": step.total,
        "created": step.created,
        "taken": step.taken,
        "stopped_by": step.stopped_by,
        "reason": step.reason,
        "deadline": None if step.deadline is None else step.deadline.isoformat(),
        "started": step.state is not StepState.WAITING and step.total is not None,
        "ended": step.ended,
    }
