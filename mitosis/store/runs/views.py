"""Runs as the API shows them: one, a list, the tasks of a step; and waiting for a change of a run."""

from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import Page
from mitosis.contracts.lifecycle import RUN, RunState
from mitosis.contracts.runs import (
    RunDefinition,
    RunInfo,
    RunQuery,
    RunsQuery,
    RunView,
    StepInfo,
    StepTask,
    StepTasksQuery,
)
from mitosis.jobs.definition import JobDefinition
from mitosis.store.missing import require_run
from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.runs.rows import definition_of
from mitosis.store.store import Store

SQL = load("runs/views.sql")
MAX_PAGE = 500
MAX_TASKS = 1_000
WINDOW = 10_000
"""So many tasks are looked at for one page of those in a state."""
AFTER_LAST = 2**63 - 1


def _filled(statement: LiteralString) -> LiteralString:
    return statement.replace("$columns$", SQL["columns"]).replace("$tables$", SQL["tables"])


RUN_SQL = _filled(SQL["run"])


def _runs(*, of_creator: bool, of_schedule: bool) -> LiteralString:
    """Return the statement with conditions for which there is an index: others may have started any number of
    runs since. Runs of schedules count to a user only among those of one schedule.
    """
    creator: LiteralString = SQL["of_creator"] if of_creator else ""
    schedule: LiteralString = SQL["of_schedule"] if of_schedule else ""
    if of_creator and not of_schedule:
        schedule = SQL["by_hand"]
    return _filled(SQL["runs"]).replace("$of_creator$", creator).replace("$of_schedule$", schedule)


RUNS_SQL = {
    (of_creator, of_schedule): _runs(of_creator=of_creator, of_schedule=of_schedule)
    for of_creator in (False, True)
    for of_schedule in (False, True)
}
"""By whether the runs of one creator, and those of one schedule are asked for."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run by its id."""

    id: int
    run_id: UUID
    group_name: str
    revision: int
    state: RunState


@dataclass(frozen=True, slots=True)
class _Progress:
    revision: int
    state: RunState


@dataclass(frozen=True, slots=True)
class _Step:
    id: int
    created: int


async def find_run(store: Store, run_id: UUID) -> FoundRun:
    """Return where a run is.

    Raises:
        NotFound: there is no such run.
    """
    async with store.database.connection() as connection:
        found = await fetch_one(connection, FoundRun, SQL["find"], {"run": run_id})
    return require_run(found, run_id)


async def read_run(store: Store, run_id: UUID) -> RunView:
    """Return a run with its steps.

    Raises:
        NotFound: there is no such run.
    """
    async with store.database.connection() as connection:
        found = await (await connection.execute(RUN_SQL, {"run": run_id})).fetchone()
    row = require_run(found, run_id)
    definition = definition_of(row["digest"], row["definition"])
    steps = [_step_info(definition, step) for step in row["steps"]]
    return RunView.model_validate({**row, "steps": steps})


async def wait_for_run(store: Store, found: FoundRun, query: RunQuery) -> RunView:
    """Return a run as soon as it has changed or ended, or after the time of the query.

    Raises:
        NotFound: it was deleted.
    """
    known = found.revision if query.after_revision is None else query.after_revision

    def is_over(now: _Progress) -> bool:
        ended = now.state in RUN.terminal
        return ended if query.until == "ended" else ended or now.revision > known

    async def look() -> _Progress:
        async with store.database.connection() as connection:
            row = await fetch_one(connection, _Progress, SQL["progress"], {"run": found.id})
        return require_run(row, found.run_id)

    if store.wake is not None and query.wait_seconds > 0:
        with store.wake.waiter(found.id, Topic.RUN) as waiter:
            await look_until(waiter, is_over, look, seconds=query.wait_seconds)
    return await read_run(store, found.run_id)


async def list_runs(store: Store, viewer_id: UUID, query: RunsQuery) -> Page[RunInfo]:
    """Return the runs of the user's groups (an admin sees all), the newest first."""
    size = page_limit(query.limit, MAX_PAGE)
    (before,) = decode_cursor("runs", query.after, int) if query.after else (AFTER_LAST,)
    values = {
        "viewer": viewer_id,
        "before": before,
        "states": [state.value for state in query.state],
        "job": query.job,
        "group_name": query.group_name,
        "created_by": query.created_by,
        "schedule": query.schedule,
        "labels": query.label,
        "limit": size + 1,
    }
    statement = RUNS_SQL[query.created_by is not None, query.schedule is not None]
    async with store.database.connection() as connection:
        rows = await (await connection.execute(statement, values)).fetchall()
    items = [RunInfo.model_validate(row) for row in rows[:size]]
    cursor = encode_cursor("runs", rows[size - 1]["id"]) if len(rows) > size else None
    return Page(items=items, next=cursor)


async def read_definition(store: Store, run_id: UUID) -> RunDefinition:
    """Return the definition of a run.

    Raises:
        NotFound: there is no such run.
    """
    async with store.database.connection() as connection:
        found = await fetch_one(connection, RunDefinition, SQL["definition"], {"run": run_id})
    return require_run(found, run_id)


async def list_step_tasks(
    store: Store, run_id: UUID, step: str, query: StepTasksQuery
) -> Page[StepTask]:
    """Return the tasks of a step by index; with a state, a page may have fewer than its limit.

    Raises:
        NotFound: there is no such run or step.
    """
    size = page_limit(query.limit, MAX_TASKS)
    this = f"tasks of {run_id} {step}"
    (start,) = decode_cursor(this, query.after, int) if query.after else (0,)
    stop = start + (size if query.state is None else WINDOW)
    async with store.database.connection() as connection:
        given: dict[str, Any] = {"run": run_id, "step": step}
        found = await fetch_one(connection, _Step, SQL["step"], given)
        if found is None:
            raise NotFound(f"the run has no step {step}")
        values = {
            "step": found.id,
            "start": start,
            "stop": stop,
            "state": query.state and query.state.value,
            "limit": size + 1,
        }
        rows = await fetch_all(connection, StepTask, SQL["tasks"], values)
    items = rows[:size]
    following = items[-1].index + 1 if len(rows) > size else stop
    cursor = encode_cursor(this, following) if following < found.created else None
    return Page(items=items, next=cursor)


def _step_info(definition: JobDefinition, row: dict[str, Any]) -> StepInfo:
    step = definition.steps[row["name"]]
    return StepInfo(
        **row,
        after={name: outcome.value for name, outcome in step.after.items()},
        executor=step.executed_by,
        group=step.group,
        is_array=step.is_array,
    )
