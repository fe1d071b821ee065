"""Carries on runs (protocol P15): counts what has ended, starts and ends steps, and ends the run.

Level-triggered: everything follows from the rows, so any process may do it at any time and any number of
times: see ``mitosis.store.runs.turns``.
"""

from dataclasses import dataclass

import psycopg

from mitosis.contracts.errors import MitosisError, UpgradeInProgress
from mitosis.contracts.lifecycle import RUN, RunState, StepState
from mitosis.jobs.order import next_steps
from mitosis.jobs.progress import (
    StepProgress,
    cleans_up,
    end_of,
    ends,
    never_complete,
    result_of,
    storable,
    too_many_failures,
    too_many_failures_of_run,
)
from mitosis.store.groups.endings import close_within
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.creating import Creation
from mitosis.store.runs.groups import add_groups
from mitosis.store.runs.rows import (
    TURN,
    Loaded,
    lock_groups,
    notify_run,
    poke_run,
    poke_schedule,
    save_steps,
)
from mitosis.store.store import Store

SQL = load("runs/advance.sql")
NOT_REACHED = "a step that it comes after has ended otherwise"
TIMED_OUT = "its timeout has passed"


@dataclass(frozen=True, slots=True)
class _Due:
    due: bool


async def carry_on(
    connection: Connection,
    store: Store,
    loaded: Loaded,
    *,
    is_new: bool = False,
    refills: bool = True,
) -> bool:
    """Carry on a run whose row the transaction holds; return whether anything has changed.

    ``refills``: whether a run that may have few open tasks gets each of them at once.

    Raises:
        MitosisError: a new run cannot start; one that was pending has failed instead.
    """
    run, began = loaded.run, False
    before = (run.state, run.stopped_by)
    creation = Creation(connection, loaded, store, refills=refills)
    if run.state is RunState.PENDING and run.stopped_by is None:
        began = await _begin(connection, store, loaded, is_new=is_new)
    if run.state is RunState.RUNNING or run.stopped_by is not None:
        await _decide(creation)
        created = run.state is RunState.RUNNING and await creation.create_tasks()
        if run.state is RunState.RUNNING:
            await _decide(creation)
    else:
        created = False
    result = result_of(loaded.definition, loaded.steps, run.stopped_by)
    if result is not None:
        run.state = result
    steps_changed = await save_steps(connection, loaded)
    await _close_groups(creation)
    run_changed = (run.state, run.stopped_by) != before
    changed = run_changed or steps_changed or loaded.counted or created
    await _save(connection, creation, began=began, changed=changed)
    if is_new or run_changed or _has_new_deadline(loaded):
        await poke_run(connection, run.id)
    if run.schedule_id is not None and result is not None and not is_new:
        await poke_schedule(connection, run.schedule_id)
    return changed


async def _begin(connection: Connection, store: Store, loaded: Loaded, *, is_new: bool) -> bool:
    """Start a pending run if it is its turn, with the task groups of its steps."""
    run = loaded.run
    if loaded.definition.max_concurrent_runs is not None:
        given = {"job_name": run.job_name, "user_group": run.user_group_id}
        await connection.execute(SQL["lock_job"], given)
        statement = SQL["is_turn"].replace("$turn$", TURN)
        turn = await fetch_one(connection, _Due, statement, {"run": run.id})
        if turn is None or not turn.due:
            return False
    try:
        async with connection.transaction():
            await add_groups(connection, store, loaded)
    except MitosisError as error:
        if is_new or may_pass(error):
            raise
        run.stopped_by, run.reason = "error", storable(str(error))
        return False
    run.state = RunState.RUNNING
    return True


def may_pass(error: Exception) -> bool:
    """Return whether a failure says something of the deployment and not of the run: trying again can help."""
    if isinstance(error, MitosisError):
        return error.http_status >= 500 or error.retryable or isinstance(error, UpgradeInProgress)
    return isinstance(error, psycopg.Error) and not isinstance(
        error, psycopg.DataError | psycopg.IntegrityError
    )


async def _decide(creation: Creation) -> None:
    """End, stop and start steps until nothing more follows."""
    loaded = creation.loaded
    run, definition = loaded.run, loaded.definition
    while True:
        moved = _end_steps(loaded)
        _stop(loaded)
        moved |= _end_steps(loaded)
        if run.stopped_by is not None:
            moved |= _cancel_waiting(loaded)
        started = {step.name for step in loaded.steps if step.state is StepState.RUNNING}
        if run.state is RunState.RUNNING:
            turn = next_steps(definition, started, ends(loaded.steps))
            for name in turn.skipped:
                loaded.by_name[name].end(StepState.SKIPPED, NOT_REACHED)
            for name in turn.ready:
                await creation.start(loaded.by_name[name])
            moved |= bool(turn.skipped or turn.ready)
        if not moved:
            return


def _end_steps(loaded: Loaded) -> bool:
    """End the running steps that have come to an end; return whether there were any."""
    moved = False
    for step in loaded.steps:
        if reason := never_complete(loaded.definition, step, loaded.by_name):
            step.stop("error", reason)
        if (state := end_of(step)) is not None:
            step.end(state)
            moved = True
    return moved


def _stop(loaded: Loaded) -> None:
    """Stop what has reached a limit, and with a run its steps."""
    run, definition = loaded.run, loaded.definition
    if run.stopped_by is None and run.state is RunState.RUNNING:
        if run.overdue:
            run.stopped_by, run.reason = "timeout", TIMED_OUT
        elif reason := too_many_failures_of_run(definition, loaded.steps):
            run.stopped_by, run.reason = "failures", reason
    for step in loaded.steps:
        if step.state is StepState.RUNNING:
            _stop_step(loaded, step)


def _stop_step(loaded: Loaded, step: StepProgress) -> None:
    run = loaded.run
    if step.overdue:
        step.stop("timeout", TIMED_OUT)
    if reason := too_many_failures(loaded.definition, step):
        step.stop("failures", reason)
    if run.stopped_by is not None and not _may_clean_up(loaded, step.name):
        step.stop("cancel", f"the run ends: {run.reason}" if run.reason else None)


def _cancel_waiting(loaded: Loaded) -> bool:
    """Cancel the steps of a stopped run that have not started, unless they clean up."""
    moved = False
    for step in loaded.steps:
        if step.state is StepState.WAITING and not _may_clean_up(loaded, step.name):
            step.end(StepState.CANCELLED, loaded.run.reason)
            moved = True
    return moved


def _may_clean_up(loaded: Loaded, name: str) -> bool:
    run = loaded.run
    started = run.state is RunState.RUNNING and not run.skip_cleanup
    return started and cleans_up(loaded.definition.steps[name])


async def _close_groups(creation: Creation) -> None:
    """Close the own task groups that no step needs any more."""
    loaded = creation.loaded
    needed = {step.task_group for step in loaded.steps if not step.ended}
    unneeded = [
        (key, group)
        for key, group in loaded.groups.items()
        if group.may_close and group.task_group not in needed
    ]
    if unneeded and not creation.locked:
        await lock_groups(creation.connection, [group.task_group for _, group in unneeded])
    for key, group in unneeded:
        reason = "no step of its run needs it any more"
        await close_within(creation.connection, group.task_group, reason)
        group.closed = True
        given = {"run": loaded.run.id, "name": key.name, "kind": key.kind}
        await creation.connection.execute(SQL["closed"], given)


async def _save(connection: Connection, creation: Creation, *, began: bool, changed: bool) -> None:
    run, definition = creation.loaded.run, creation.loaded.definition
    timeout = definition.timeout
    running = run.state is RunState.RUNNING
    values = {
        "run": run.id,
        "state": run.state.value,
        "stopped_by": run.stopped_by,
        "reason": run.reason,
        "due": running and creation.unfinished(),
        "changed": changed,
        "started": began,
        "ended": run.state in RUN.terminal,
        "begins": began and timeout is not None,
        "timeout": None if timeout is None else timeout.total_seconds(),
    }
    await connection.execute(SQL["save_run"], values)
    await notify_run(connection, run.id, changed=changed, due=bool(values["due"]))


def _has_new_deadline(loaded: Loaded) -> bool:
    """Return whether the workflow has to set a timer."""
    return any(
        step.deadline is not None and loaded.before[step.id]["deadline"] is None
        for step in loaded.steps
    )
