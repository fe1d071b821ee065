"""How a task group ends: verbs, auto-close, discard, finalize, settle (protocol P8).

Every function is one short transaction that locks first (leases, then ``group_live``) and reads in a
later statement. Each *ensures* its goal: a group that is already there is left unchanged.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from mitosis.chunk_size import ChunkSize
from mitosis.contracts.control import (
    Cancel,
    Close,
    Complete,
    DiscardAnswer,
    Reopen,
    VerbRequest,
)
from mitosis.contracts.errors import Conflict, DatabaseUnavailable, InvalidTransition, NotFound
from mitosis.contracts.http import TaskGroupKind
from mitosis.contracts.lifecycle import (
    TASK_GROUP,
    TaskGroupEvent,
    TaskGroupResult,
    TaskGroupState,
)
from mitosis.scheduling.host_failures import setup_failed_on
from mitosis.store.groups.cleanup import AWAITED, cleanup_parameters
from mitosis.store.groups.removal import remove_settled
from mitosis.store.leases.doubt import judge_group
from mitosis.store.leases.ending import LockedGroup, end_leases_of_group, lock_group_and_leases
from mitosis.store.leases.failed_setups import failed_setups
from mitosis.store.missing import require_task_group
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("groups/endings.sql")
SETTLE_FACTS = SQL["settle_facts"].replace("{awaited}", AWAITED)
DISCARD_CHUNK = 10_000
DEADLINE_PASSED = "its close deadline has passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup(LockedGroup):
    """A locked group, and whether its auto-close time or its close deadline has passed."""

    kind: TaskGroupKind
    inactive: bool | None
    """Its auto-close time has come; None if it has none."""
    overdue: bool | None
    """Its close deadline has passed; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleFacts:
    """What decides whether a group may settle and how it ended."""

    state: TaskGroupState
    settled: bool
    unfinished: int
    succeeded: int
    failed: int
    cancelled: int
    live_leases: int
    busy_environments: int
    """Those whose end is waited for."""
    degraded: bool
    """The teardown on a host failed, or is not over."""
    setup_failed: bool
    deleting: bool = False
    """It is deleted as soon as it is settled."""


@dataclass(frozen=True, slots=True)
class _Discarded:
    cancelled: int
    seen_to: int | None


@dataclass(frozen=True, slots=True)
class Discarded:
    """What one chunk has cancelled, and how far it came; None: it found none."""

    cancelled: int
    seen_to: int | None
    remaining: bool


@dataclass(frozen=True, slots=True)
class _Grace:
    seconds: float


@dataclass(frozen=True, slots=True)
class _Unclaimed:
    left_over: bool


async def apply(store: Store, request: VerbRequest) -> None:
    """Close, reopen, cancel or complete a group.

    Raises:
        NotFound: there is no such group.
        InvalidTransition: its state does not allow the verb.
    """
    match request.verb:
        case Close() as verb:
            await _close(store, request.task_group_id, verb)
        case Reopen() as verb:
            await _reopen(store, request.task_group_id, verb)
        case Cancel() as verb:
            await _cancel(store, request.task_group_id, verb)
        case Complete() as verb:
            await _complete(store, request.task_group_id, verb)


async def close_if_inactive(store: Store, task_group_id: UUID) -> None:
    """Close an OPEN group whose auto-close time has come; complete an overdue one by force (C-08)."""
    async with store.database.transaction() as connection:
        group = await _find_live(connection, task_group_id)
        overdue = group is not None and bool(group.overdue)
        if group is not None and group.inactive and not overdue:
            await _change(connection, SQL["close"], group.number, reason=None)
            await notify_group(connection, group.number)
    if overdue:
        verb = Complete(force=True, reason=DEADLINE_PASSED)
        with suppress(InvalidTransition):  # cancelled since
            await _complete(store, task_group_id, verb)


async def end_after_failed_setups(store: Store, task_group_id: UUID) -> None:
    """End a group that no host can be prepared for: cancel its tasks, and name every host and reason.

    Leave any other as it is.
    """
    async with store.database.transaction() as connection:
        with suppress(NotFound):
            group = await lock_group_and_leases(connection, task_group_id)
            if failed := await failed_setups(connection, group.number):
                reason = setup_failed_on(failed)
                await _change(
                    connection, SQL["end_after_failed_setups"], group.number, reason=reason
                )
                await notify_group(connection, group.number, workflow=False)


class Discarding:
    """The cancellation of unclaimed tasks in one process: it knows how many a chunk may have."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._size = ChunkSize(most=DISCARD_CHUNK)
        self._place: tuple[UUID | None, int] = (None, 0)

    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        """Cancel one chunk of the unclaimed tasks of a group that is discarding, in about 50 ms.

        It begins behind the chunk before, whose deleted rows it need not read.
        """
        after = self._place[1] if self._place[0] == task_group_id else 0
        began = time.monotonic()
        try:
            chunk = await discard_chunk(self._store, task_group_id, self._size.rows, after)
            if after and not chunk.cancelled and chunk.remaining:
                chunk = await discard_chunk(self._store, task_group_id, self._size.rows)
        except DatabaseUnavailable:  # also a statement that was too slow: Temporal tries again
            self._size.failed()
            raise
        self._size.took(time.monotonic() - began)
        self._place = (task_group_id, chunk.seen_to or 0)
        return DiscardAnswer(cancelled=chunk.cancelled, remaining=chunk.remaining)


async def discard_chunk(
    store: Store, task_group_id: UUID, limit: int = DISCARD_CHUNK, after: int = 0
) -> Discarded:
    """Cancel up to ``limit`` unclaimed tasks of a group that is discarding, behind the task ``after``."""
    async with store.database.in_index_order() as connection:
        group = await _find_live(connection, task_group_id)
        if group is None or not group.discarding:
            return Discarded(cancelled=0, seen_to=None, remaining=False)
        await judge_group(connection, group.number, store.quarantine_after)
        parameters = {"group_number": group.number, "limit": limit, "after": after}
        done = await fetch_one(connection, _Discarded, SQL["discard"], parameters)
        seen_to = None if done is None else done.seen_to
        remaining = await _unclaimed_left(connection, group.number, seen_to or after)
    return Discarded(done.cancelled if done else 0, seen_to, remaining=remaining)


async def _unclaimed_left(connection: Connection, group_number: int, after: int) -> bool:
    """Return whether the group has unclaimed tasks; those behind ``after`` are found first."""
    for place in (after, 0) if after else (0,):
        parameters = {"group_number": group_number, "after": place}
        left = await fetch_one(connection, _Unclaimed, SQL["unclaimed_left"], parameters)
        if left is not None and left.left_over:
            return True
    return False


async def finalize(store: Store, task_group_id: UUID) -> None:
    """Complete a CLOSED group with nothing unfinished; leave any other as it is."""
    async with store.database.transaction() as connection:
        with suppress(NotFound):
            group = await lock_group_and_leases(connection, task_group_id)
            await _finalize(connection, group.number, group.state, group.unfinished, workflow=False)


async def settle(store: Store, task_group_id: UUID) -> TaskGroupResult | None:
    """Write ``settled_at`` and ``result`` if nothing of the group is left anywhere, and return the result.

    Else change nothing. A group that is to be deleted is removed in the same transaction.
    """
    async with store.database.transaction() as connection:
        try:
            group = await lock_group_and_leases(connection, task_group_id)
        except NotFound:
            return None
        number = {"group_number": group.number}
        given = {**number, **cleanup_parameters()}
        facts = await fetch_one(connection, SettleFacts, SETTLE_FACTS, given)
        if facts is None or not may_settle(facts):
            return None
        result = result_of(facts)
        await connection.execute(SQL["settle"], {**number, "result": result.value})
        await notify_group(connection, group.number, workflow=False)
        if facts.deleting:
            await remove_settled(connection, group.number)
    return result


def result_of(facts: SettleFacts) -> TaskGroupResult:
    """Return how a group that settles ended: the first rule that holds (``TaskGroupResult``)."""
    rules = (
        (facts.state is TaskGroupState.CANCELLED, TaskGroupResult.CANCELLED),
        (facts.setup_failed, TaskGroupResult.SETUP_FAILED),
        (facts.failed or facts.cancelled, TaskGroupResult.TASKS_FAILED),
        (facts.degraded, TaskGroupResult.TEARDOWN_DEGRADED),
    )
    return next((result for holds, result in rules if holds), TaskGroupResult.SUCCESS)


def may_settle(facts: SettleFacts) -> bool:
    """Return whether the group is terminal, not settled, and nothing of it is left."""
    terminal = facts.state in TASK_GROUP.terminal
    left = facts.unfinished or facts.live_leases or facts.busy_environments
    return terminal and not facts.settled and not left


async def lock_live(connection: Connection, task_group_id: UUID) -> LiveGroup:
    """Lock the ``group_live`` row of a group.

    Raises:
        NotFound: there is no such group.
    """
    return require_task_group(await _find_live(connection, task_group_id), task_group_id)


async def notify_group(
    connection: Connection, group_number: int, *, scheduler: bool = False, workflow: bool = True
) -> None:
    """Poke the workflow of the group and wake its long polls when the caller's transaction commits.

    ``workflow``: False if the workflow itself is the caller and looks again afterwards.
    """
    values = {"group_number": group_number, "scheduler": scheduler, "workflow": workflow}
    await connection.execute(SQL["notify_group"], values)


async def _close(store: Store, task_group_id: UUID, verb: Close) -> None:
    async with store.database.transaction() as connection:
        group = await lock_live(connection, task_group_id)
        if group.state in (TaskGroupState.CLOSED, TaskGroupState.COMPLETE):
            return
        TASK_GROUP.after(group.state, TaskGroupEvent.CLOSE)
        await _change(connection, SQL["close"], group.number, reason=verb.reason)
        await notify_group(connection, group.number)


async def _reopen(store: Store, task_group_id: UUID, verb: Reopen) -> None:
    async with store.database.transaction() as connection:
        group = await lock_live(connection, task_group_id)
        if group.state is TaskGroupState.OPEN:
            return
        TASK_GROUP.after(group.state, TaskGroupEvent.REOPEN)
        if group.discarding:
            raise InvalidTransition(
                subject=TASK_GROUP.name,
                state=group.state,
                event=TaskGroupEvent.REOPEN,
                allowed=(TaskGroupEvent.CANCEL,),
                message="the task group is being completed by force and cannot be reopened",
            )
        await _change(connection, SQL["reopen"], group.number, reason=verb.reason)
        await notify_group(connection, group.number, scheduler=True)


async def _cancel(store: Store, task_group_id: UUID, verb: Cancel) -> None:
    async with store.database.transaction() as connection:
        group = await lock_group_and_leases(connection, task_group_id)
        await cancel_locked(connection, group, verb)


async def close_within(connection: Connection, task_group_id: UUID, reason: str) -> None:
    """Close a group in the caller's transaction; leave one that is not OPEN, or deleted, as it is."""
    group = await _find_live(connection, task_group_id)
    if group is not None and group.state is TaskGroupState.OPEN:
        await _change(connection, SQL["close"], group.number, reason=reason)
        await notify_group(connection, group.number)


async def cancel_locked(connection: Connection, group: LockedGroup, verb: Cancel) -> None:
    """Cancel a group whose leases and row the caller holds.

    Raises:
        InvalidTransition: it is COMPLETE.
        Conflict: its tasks are being stopped with another grace.
    """
    if group.state is TaskGroupState.CANCELLED:
        if verb.cancel_running_tasks:
            values = {"group_number": group.number, "grace": verb.grace_seconds}
            begun = (await connection.execute(SQL["kill_running"], values)).rowcount
            if not begun and group.unfinished:
                await _check_grace(connection, group.number, verb.grace_seconds)
        return
    TASK_GROUP.after(group.state, TaskGroupEvent.CANCEL)
    await _change(
        connection,
        SQL["cancel"],
        group.number,
        reason=verb.reason,
        kill=verb.cancel_running_tasks,
        grace=verb.grace_seconds,
    )
    await end_leases_of_group(connection, group.number)


async def _complete(store: Store, task_group_id: UUID, verb: Complete) -> None:
    """Close, and complete as soon as nothing is unfinished; with ``force`` cancel what is."""
    async with store.database.transaction() as connection:
        group = await lock_group_and_leases(connection, task_group_id)
        number = group.number
        if group.state is TaskGroupState.COMPLETE:
            return
        if group.state is TaskGroupState.OPEN:
            await _change(connection, SQL["close"], number, reason=verb.reason)
        else:
            TASK_GROUP.after(group.state, TaskGroupEvent.COMPLETE)
        if await _finalize(connection, number, TaskGroupState.CLOSED, group.unfinished):
            return
        if verb.force and group.discarding:
            await _check_grace(connection, number, verb.grace_seconds)
        elif verb.force:
            await _change(
                connection, SQL["force"], number, reason=verb.reason, grace=verb.grace_seconds
            )
            await end_leases_of_group(connection, number)
        await notify_group(connection, number)


async def _check_grace(connection: Connection, group_number: int, asked: float | None) -> None:
    """Check that running tasks, which are being stopped already, have this grace.

    Raises:
        Conflict: they have another one, which stays.
    """
    number = {"group_number": group_number}
    held = await fetch_one(connection, _Grace, SQL["grace_in_force"], number)
    if held is not None and asked is not None and asked != held.seconds:
        raise Conflict(
            f"its running tasks are being stopped with a grace of {held.seconds:g} s, which stays",
            field="grace_seconds",
        )


async def _finalize(
    connection: Connection,
    group_number: int,
    state: TaskGroupState,
    unfinished: int,
    *,
    workflow: bool = True,
) -> bool:
    """Complete a CLOSED group with nothing unfinished; the caller holds leases and group."""
    if state is not TaskGroupState.CLOSED or unfinished:
        return False
    await _change(connection, SQL["complete"], group_number, reason=None)
    await end_leases_of_group(connection, group_number, workflow=workflow)
    return True


async def _find_live(connection: Connection, task_group_id: UUID) -> LiveGroup | None:
    return await fetch_one(connection, LiveGroup, SQL["lock_live"], {"group": task_group_id})


async def _change(
    connection: Connection, statement: LiteralString, group_number: int, **facts: object
) -> None:
    """Execute one guarded UPDATE of the group's row, which the caller holds."""
    await connection.execute(statement, {"group_number": group_number, **facts})
