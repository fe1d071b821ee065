"""Cancels and deletes runs."""

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.control import Cancel
from mitosis.contracts.errors import Conflict, NotFound
from mitosis.contracts.lifecycle import RUN, RunEvent, RunState
from mitosis.contracts.runs import CancelRun
from mitosis.jobs.progress import storable
from mitosis.store.groups.deletion import delete_group
from mitosis.store.groups.removal import remove_settled
from mitosis.store.leases.ending import lock_group_and_leases
from mitosis.store.missing import require_run
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.rows import notify_run, poke_run
from mitosis.store.runs.turns import Turns
from mitosis.store.store import Store

SQL = load("runs/stopping.sql")
log = logging.getLogger(__name__)
FIRST_TURNS_SECONDS = 0.5
"""For about so long the call that cancels a run cancels its tasks itself."""


@dataclass(frozen=True, slots=True)
class _Locked:
    id: int
    state: RunState


@dataclass(frozen=True, slots=True)
class _Run:
    run_id: UUID


@dataclass(frozen=True, slots=True)
class _Group:
    task_group: UUID


async def cancel_run(store: Store, run_id: UUID, asked: CancelRun) -> None:
    """Have the rest of a run cancelled. Idempotent.

    Raises:
        NotFound: there is no such run.
        InvalidTransition: it has ended otherwise.
    """
    async with store.database.transaction() as connection:
        stopped = await stop_within(connection, run_id, asked)
    if stopped is not None:
        await take_first_turns(store, [stopped])


async def stop_within(connection: Connection, run_id: UUID, asked: CancelRun) -> int | None:
    """Stop a run in the caller's transaction; return its number, unless it was cancelled before.

    Raises:
        NotFound, InvalidTransition: as :func:`cancel_run`.
    """
    run = await _lock(connection, run_id)
    if run.state is RunState.CANCELLED:
        return None
    RUN.after(run.state, RunEvent.CANCEL)
    values = {
        "run": run.id,
        "reason": storable(asked.reason),
        "skip_cleanup": asked.skip_cleanup,
        "grace": asked.grace_seconds,
    }
    await connection.execute(SQL["stop"], values)
    await notify_run(connection, run.id, changed=True, due=True)
    await poke_run(connection, run.id)
    return run.id


async def take_first_turns(store: Store, numbers: Collection[int]) -> None:
    """Cancel tasks of runs that were stopped. It fails never; an API process goes on."""
    turns = Turns(store)
    turns.add(numbers)
    await turns.take_all(FIRST_TURNS_SECONDS)


async def delete_run(store: Store, run_id: UUID) -> None:
    """Delete an ended run with its own task groups. If it is interrupted, the control worker goes on.

    Raises:
        NotFound: there is no such run.
        Conflict: it has not ended, or another run uses results of it.
    """
    async with store.database.transaction() as connection:
        run = await _lock(connection, run_id)
        await _check_unused(connection, run, run_id)
        await connection.execute(SQL["mark"], {"run": run.id})  # from now on no rerun uses it
        groups = await fetch_all(connection, _Group, SQL["own_groups"], {"run": run.id})
    for group in groups:
        with suppress(NotFound):
            await delete_group(store, group.task_group, Cancel(reason="its run was deleted"))
    async with store.database.transaction() as connection:
        await connection.execute(SQL["delete_ends"], {"run": run.id})
        await connection.execute(SQL["delete_run"], {"run": run.id})


async def delete_marked(store: Store) -> None:
    """Go on with deletions of runs that were interrupted."""
    async with store.database.connection() as connection:
        found = await fetch_all(connection, _Run, SQL["marked"], {})
    for one in found:
        try:
            await delete_run(store, one.run_id)
        except NotFound:  # done
            pass
        except Exception:  # it holds up no other
            log.exception("run.not_deleted", extra={"run": str(one.run_id)})


async def remove_ended(connection: Connection, run_id: UUID) -> bool:
    """Delete an ended run in the caller's transaction; return whether it is gone.

    It stays while another run uses results of it, or one of its own task groups is not settled.

    Raises:
        NotFound: there is no such run.
    """
    run = await _lock(connection, run_id)
    used = await fetch_all(connection, _Run, SQL["used_by"], {"uuid": run_id})
    if run.state not in RUN.terminal or used:
        return False
    for group in await fetch_all(connection, _Group, SQL["own_groups"], {"run": run.id}):
        locked = await lock_group_and_leases(connection, group.task_group)
        if not await remove_settled(connection, locked.number):
            return False
    await connection.execute(SQL["delete_ends"], {"run": run.id})
    await connection.execute(SQL["delete_run"], {"run": run.id})
    return True


async def _check_unused(connection: Connection, run: _Locked, run_id: UUID) -> None:
    if run.state not in RUN.terminal:
        raise Conflict(
            f"the run is {run.state}: cancel it, and delete it when it has ended",
            state=run.state.value,
        )
    used = await fetch_all(connection, _Run, SQL["used_by"], {"uuid": run_id})
    if used:
        names = [str(one.run_id) for one in used]
        raise Conflict(
            f"run {names[0]} uses results of this one: delete that run first", runs=names[:10]
        )


async def _lock(connection: Connection, run_id: UUID) -> _Locked:
    return require_run(await fetch_one(connection, _Locked, SQL["lock"], {"run": run_id}), run_id)
