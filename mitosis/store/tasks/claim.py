"""Claiming tasks: one statement for a whole batch, and a long poll while there are none (P2, P3, P7)."""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace
from psycopg.rows import args_row

from mitosis.contracts.lifecycle import LeaseState
from mitosis.contracts.outcome import LOST_ALONE
from mitosis.contracts.wire import ClaimAnswer, ClaimedTask, ClaimTasks, LeaseStanding
from mitosis.store.leases.ending import STANDING
from mitosis.store.leases.verdicts import OTHERS_FIRST_SECONDS
from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store

SQL = load("tasks/claim.sql")
KEPT_FOR_OTHERS_SECONDS = 1.0
"""How often a waiting claim looks at due tasks that another host is to take."""


class _Row(NamedTuple):
    """A row of ``claim``, in the order of its columns; a tuple since there are up to 1,000 of them."""

    group_id: int
    id: int | None
    attempt: int
    lost_count: int
    announce: bool
    spec: str


_claim_row = args_row(_Row)


class _Look(NamedTuple):
    """The answer to a claim, and the group's number if the lease is active."""

    answer: ClaimAnswer
    group_number: int | None


@dataclass(frozen=True, slots=True)
class _Hungry:
    """The row of ``hungry``."""

    due_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Lease:
    """The row of ``lease_state``."""

    state: LeaseState


async def claim_tasks(store: Store, manager_id: UUID, request: ClaimTasks) -> ClaimAnswer:
    """Take tasks under a live epoch; wait up to ``wait_seconds`` without holding a connection."""
    first = await _claim(store, manager_id, request)
    number = first.group_number
    if request.wait_seconds <= 0 or _is_final(first) or number is None or store.wake is None:
        return first.answer

    late = request
    if request.max_late is not None:
        late = replace(request, max_tasks=min(request.max_tasks, request.max_late))

    async def look() -> _Look:
        return await _claim(store, manager_id, late)

    due_in_seconds: float | None = None

    async def mark_hungry() -> None:
        nonlocal due_in_seconds
        due_in_seconds = await _mark_hungry(store, manager_id, number)

    with store.wake.waiter(number, Topic.WORK) as waiter:
        last = await look_until(
            waiter,
            _is_final,
            look,
            seconds=request.wait_seconds,
            arm=mark_hungry,
            again=lambda _: _look_again_in(due_in_seconds),
        )
    return last.answer


async def _claim(store: Store, manager_id: UUID, request: ClaimTasks) -> _Look:
    parameters = {
        "manager": manager_id,
        "epoch": request.epoch,
        "claim_seq": request.claim_seq,
        "acked_seq": request.acked_seq,
        "max_tasks": request.max_tasks,
        "others_first": OTHERS_FIRST_SECONDS,
    }
    async with store.database.connection() as connection:
        cursor = connection.cursor(row_factory=_claim_row)
        await cursor.execute(SQL["claim"], parameters, binary=True, prepare=True)
        rows = await cursor.fetchall()
        if not rows:
            lease = await fetch_one(connection, _Lease, SQL["lease_state"], parameters)
            state = LeaseState.ENDED if lease is None else lease.state
            return _Look(ClaimAnswer(standing=STANDING[state]), None)
    tasks = [_claimed(row, row.id) for row in rows if row.id is not None]
    answer = ClaimAnswer(standing=LeaseStanding.ACTIVE, tasks=tasks)
    return _Look(answer, rows[0].group_id)


async def _mark_hungry(store: Store, manager_id: UUID, group_number: int) -> float | None:
    """Ask for a notification of work; return the seconds until a delayed task is due, if any."""
    async with store.database.connection() as connection:
        parameters = {
            "manager": manager_id,
            "group_number": group_number,
            "others_first": OTHERS_FIRST_SECONDS,
        }
        row = await fetch_one(connection, _Hungry, SQL["hungry"], parameters)
    return None if row is None else row.due_in_seconds


def _look_again_in(due_in_seconds: float | None) -> float | None:
    """Return when a delayed task may be claimed; a due one that is not is kept for another host."""
    if due_in_seconds is None or due_in_seconds > 0:
        return due_in_seconds
    return KEPT_FOR_OTHERS_SECONDS


def _is_final(look: _Look) -> bool:
    return bool(look.answer.tasks) or look.answer.standing is not LeaseStanding.ACTIVE


def _claimed(row: _Row, task_id: int) -> ClaimedTask:
    return ClaimedTask(
        task_id=task_id,
        attempt=row.attempt,
        spec=Raw(row.spec.encode()),
        alone=row.lost_count >= LOST_ALONE,
        announce=row.announce,
    )
