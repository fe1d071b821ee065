"""The edges of a task group's life: verbs, auto-close, discard, finalize, settle (protocol P8).

Every function is one short transaction that locks first (leases, then ``group_live``) and looks in a
later statement. Each *ensures* its goal: a group that is there already is left as it is.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from psycopg.rows import DictRow

from mitosis.contracts.control import (
    Cancel,
    Close,
    Complete,
    DiscardAnswer,
    Reopen,
    VerbRequest,
)
from mitosis.contracts.errors import InvalidTransition, NotFound
from mitosis.contracts.lifecycle import (
    TASK_GROUP,
    TaskGroupEvent,
    TaskGroupResult,
    TaskGroupState,
)
from mitosis.store.leases.ending import (
    LockedGroup,
    end_leases_of_group,
    lock_group_and_leases,
)
from mitosis.store.pg.database import Connection, Database
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load

SQL = load("groups/task_groups.sql")
DISCARD_CHUNK = 10_000
DEADLINE_PASSED = "its close deadline has passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup(LockedGroup):
    """A locked group, and whether a clock ends it now."""

    inactive: bool | None
    """OPEN, and its auto-close timeout has passed; None without such a timeout."""
    overdue: bool | None
    """Its close deadline has passed; None without a deadline."""


async def apply(database: Database, request: VerbRequest) -> None:
    """See ``TaskGroupPort.apply``."""
    match request.verb:
        case Close() as verb:
            await _close(database, request.task_group_id, verb)
        case Reopen() as verb:
            await _reopen(database, request.task_group_id, verb)
        case Cancel() as verb:
            await _cancel(database, request.task_group_id, verb)
        case Complete() as verb:
            await _complete(database, request.task_group_id, verb)


async def close_if_inactive(database: Database, task_group_id: UUID) -> None:
    """See ``TaskGroupPort.close_if_inactive``."""
    async with database.transaction() as connection:
        group = await _find_live(connection, task_group_id)
        overdue = group is not None and group.overdue
        if group is not None and group.inactive and not overdue:
            await _change(connection, group, "close", reason=None)
            await _tell(connection, group)
    if overdue:
        verb = Complete(force=True, reason=DEADLINE_PASSED)
        with suppress(InvalidTransition):  # cancelled meanwhile
            await _complete(database, task_group_id, verb)


async def discard(database: Database, task_group_id: UUID) -> DiscardAnswer:
    """See ``TaskGroupPort.discard``."""
    async with database.transaction() as connection:
        group = await _find_live(connection, task_group_id)
        if group is None or not group.discarding:
            return DiscardAnswer(cancelled=0, remaining=False)
        parameters = {"group_number": group.number, "limit": DISCARD_CHUNK}
        row = await (await connection.execute(SQL["discard"], parameters)).fetchone()
        left = await (await connection.execute(SQL["unclaimed_left"], parameters)).fetchone()
    return DiscardAnswer(
        cancelled=row["cancelled"] if row else 0, remaining=bool(left and left["left_over"])
    )


async def finalize(database: Database, task_group_id: UUID) -> None:
    """See ``TaskGroupPort.finalize``."""
    async with database.transaction() as connection:
        try:
            group = await lock_group_and_leases(connection, task_group_id)
        except NotFound:
            return
        await _finalize(connection, group)


async def settle(database: Database, task_group_id: UUID) -> None:
    """See ``TaskGroupPort.settle``."""
    async with database.transaction() as connection:
        try:
            group = await lock_group_and_leases(connection, task_group_id)
        except NotFound:
            return
        number = {"group_number": group.number}
        facts = await (await connection.execute(SQL["settle_facts"], number)).fetchone()
        if facts is None or not _may_settle(facts):
            return
        await connection.execute(SQL["settle"], {**number, "result": result_of(facts).value})
        await _tell(connection, group)


def result_of(facts: DictRow) -> TaskGroupResult:
    """How a group that settles ended: the first rule that holds (``TaskGroupResult``)."""
    rules = (
        (facts["state"] == TaskGroupState.CANCELLED, TaskGroupResult.CANCELLED),
        (facts["setup_failed"], TaskGroupResult.SETUP_FAILED),
        (facts["failed"] or facts["cancelled"], TaskGroupResult.TASKS_FAILED),
        (facts["degraded"], TaskGroupResult.TEARDOWN_DEGRADED),
    )
    return next((result for holds, result in rules if holds), TaskGroupResult.SUCCESS)


def _may_settle(facts: DictRow) -> bool:
    terminal = facts["state"] in TASK_GROUP.terminal
    left = facts["unfinished"] or facts["live_leases"] or facts["busy_environments"]
    return terminal and not facts["settled"] and not left


async def _close(database: Database, task_group_id: UUID, verb: Close) -> None:
    async with database.transaction() as connection:
        group = await lock_live(connection, task_group_id)
        state = group.state
        if state in (TaskGroupState.CLOSED, TaskGroupState.COMPLETE):
            return
        TASK_GROUP.after(state, TaskGroupEvent.CLOSE)
        await _change(connection, group, "close", reason=verb.reason)
        await _tell(connection, group)


async def _reopen(database: Database, task_group_id: UUID, verb: Reopen) -> None:
    async with database.transaction() as connection:
        group = await lock_live(connection, task_group_id)
        state = group.state
        if state is TaskGroupState.OPEN:
            return
        TASK_GROUP.after(state, TaskGroupEvent.REOPEN)
        if group.discarding:
            raise InvalidTransition(
                subject=TASK_GROUP.name,
                state=state,
                event=TaskGroupEvent.REOPEN,
                allowed=(TaskGroupEvent.CANCEL,),
                message="the task group is being completed by force and cannot be reopened",
            )
        await _change(connection, group, "reopen", reason=verb.reason)
        await _tell(connection, group, scheduler=True)


async def _cancel(database: Database, task_group_id: UUID, verb: Cancel) -> None:
    async with database.transaction() as connection:
        group = await lock_group_and_leases(connection, task_group_id)
        state = group.state
        facts = {"kill": verb.cancel_running_tasks, "grace": verb.grace_seconds}
        if state is TaskGroupState.CANCELLED:
            if verb.cancel_running_tasks:
                await _change(connection, group, "kill_after_all", **facts)
            return
        TASK_GROUP.after(state, TaskGroupEvent.CANCEL)
        await _change(connection, group, "cancel", reason=verb.reason, **facts)
        await end_leases_of_group(connection, group.number)


async def _complete(database: Database, task_group_id: UUID, verb: Complete) -> None:
    """Close, and complete as soon as nothing is unfinished; with ``force`` cancel what is."""
    async with database.transaction() as connection:
        group = await lock_group_and_leases(connection, task_group_id)
        state = group.state
        if state is TaskGroupState.COMPLETE:
            return
        if state is TaskGroupState.OPEN:
            await _change(connection, group, "close", reason=verb.reason)
        else:
            TASK_GROUP.after(state, TaskGroupEvent.COMPLETE)
        if await _finalize(connection, replace(group, state=TaskGroupState.CLOSED)):
            return
        if verb.force:
            await _change(connection, group, "force", reason=verb.reason, grace=verb.grace_seconds)
            await end_leases_of_group(connection, group.number)
        await _tell(connection, group)


async def _finalize(connection: Connection, group: LockedGroup) -> bool:
    """CLOSED with nothing unfinished → COMPLETE; the caller holds leases and group."""
    if group.state is not TaskGroupState.CLOSED or group.unfinished:
        return False
    await _change(connection, group, "complete", reason=None)
    await end_leases_of_group(connection, group.number)
    return True


async def lock_live(connection: Connection, task_group_id: UUID) -> LiveGroup:
    """Lock the live row of a group.

    Raises:
        NotFound: there is no such group.
    """
    group = await _find_live(connection, task_group_id)
    if group is None:
        raise NotFound("no such task group", task_group_id=str(task_group_id))
    return group


async def _find_live(connection: Connection, task_group_id: UUID) -> LiveGroup | None:
    return await fetch_one(connection, LiveGroup, SQL["lock_live"], {"group": task_group_id})


async def _change(connection: Connection, group: LockedGroup, name: str, **facts: object) -> None:
    """One guarded UPDATE of the group's row, which the caller holds."""
    await connection.execute(SQL[name], {"group_number": group.number, **facts})


async def _tell(connection: Connection, group: LockedGroup, *, scheduler: bool = False) -> None:
    await connection.execute(
        SQL["tell_group"], {"group_number": group.number, "scheduler": scheduler}
    )
