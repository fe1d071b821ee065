"""Tasks: submit, claim, report, and what people see of them.

Submit, claim and report are the hot path: one or two statements in one round trip for a whole batch
(``sql/tasks.sql``), never one per task.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import Raw

from mitosis.contracts.http import Page, ResultsPage, RetriedTasks, RetryBody, TaskInfo
from mitosis.contracts.lifecycle import LeaseState, TaskState
from mitosis.contracts.outcome import LOST_ALONE
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimedTask,
    ClaimTasks,
    LeaseStanding,
    ReportAnswer,
    ReportTasks,
    SubmitAnswer,
    SubmitTasks,
)
from mitosis.store.leases.ending import STANDING
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store
from mitosis.store.tasks import reports, submits, task_views
from mitosis.store.tasks.results import results_after
from mitosis.store.tasks.retries import retry

SQL = load("tasks/tasks.sql")


class TaskStore:
    """All access to tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database
        self._wake = store.wake

    async def submit(self, task_group_id: UUID, request: SubmitTasks) -> SubmitAnswer:
        """Add up to 10,000 tasks, all or nothing (protocol P11).

        The caller has checked permission. Checks the tasks themselves.

        Raises:
            NotFound: no such group.
            TaskGroupClosed: the group accepts none.
            InvalidRequest: a task is not valid; names it by index.
            TooLarge: too many tasks, or a spec that is too large.
            QueueFull: too many tasks are unfinished.
        """
        return await submits.submit(self._store, task_group_id, request)

    async def retry(self, group: UUID, into: UUID, asked: RetryBody) -> RetriedTasks:
        """Submit ended tasks again, one part; see :func:`mitosis.store.tasks.retries.retry`."""
        return await retry(self._store, group, into, asked)

    async def claim(self, manager_id: UUID, request: ClaimTasks) -> ClaimAnswer:
        """Take tasks under a live epoch; waits up to ``wait_seconds`` holding no connection (P3, P7)."""
        deadline = time.monotonic() + request.wait_seconds
        answer, group_number = await self._claim(manager_id, request)
        if not _worth_waiting(answer, request) or group_number is None or self._wake is None:
            return answer
        with self._wake.waiter(group_number, Topic.WORK) as waiter:
            while True:
                due_in_seconds = await self._mark_hungry(group_number)
                answer, _ = await self._claim(manager_id, request)
                left = deadline - time.monotonic()
                if not _worth_waiting(answer, request) or left <= 0:
                    return answer
                await waiter.wait(left if due_in_seconds is None else min(left, due_in_seconds))
                answer, _ = await self._claim(manager_id, request)
                if not _worth_waiting(answer, request):
                    return answer

    async def report(self, manager_id: UUID, request: ReportTasks) -> ReportAnswer:
        """Record how attempts ended; says per task what became of the report (P2, P3).

        Accepted by attempt, also under an epoch that has ended.

        Raises:
            TooLarge: more than ``wire.MAX_REPORTS``.
        """
        return await reports.report(self._database, manager_id, request)

    async def list(
        self,
        task_group_id: UUID,
        *,
        state: TaskState | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page[TaskInfo]:
        """Tasks of a group by id; of ``failures`` all but their ``detail``. ``limit`` at most 1,000.

        Raises:
            NotFound: no such group.
            InvalidRequest: ``after`` is not from an earlier page.
        """
        return await task_views.page(self._database, task_group_id, state, after, limit)

    async def results(
        self,
        task_group_id: UUID,
        *,
        after: int = 0,
        limit: int = 100,
        timeout: timedelta = timedelta(0),
    ) -> ResultsPage:
        """Results recorded after number ``after``, in that order; waits up to ``timeout`` for the next one.

        ``limit`` at most 1,000. Holds no connection while it waits.

        Raises:
            NotFound: no such group.
        """
        return await results_after(
            self._database,
            self._wake,
            task_group_id,
            after=after,
            limit=limit,
            timeout=timeout,
        )

    async def get(self, task_uuid: UUID) -> TaskInfo:
        """One task with its spec, result and every failed attempt.

        Raises:
            NotFound: no such task.
        """
        return await task_views.one(self._database, task_uuid)

    async def _claim(self, manager_id: UUID, request: ClaimTasks) -> tuple[ClaimAnswer, int | None]:
        """One look: the answer, and the group's number while the lease is active."""
        parameters = {
            "manager": manager_id,
            "epoch": request.epoch,
            "claim_seq": request.claim_seq,
            "acked_seq": request.acked_seq,
            "max_tasks": request.max_tasks,
        }
        async with self._database.connection() as connection:
            cursor = await connection.execute(SQL["claim"], parameters, binary=True)
            rows = await cursor.fetchall()
            if not rows:
                cursor = await connection.execute(SQL["standing"], parameters)
                lease = await cursor.fetchone()
                state = LeaseState.ENDED if lease is None else LeaseState(lease["lease_state"])
                return ClaimAnswer(standing=STANDING[state]), None
        tasks = [_claimed(row) for row in rows if row["id"] is not None]
        return ClaimAnswer(standing=LeaseStanding.ACTIVE, tasks=tasks), rows[0]["group_id"]

    async def _mark_hungry(self, group_number: int) -> float | None:
        """Ask to be told of work; gives the seconds until a delayed task is due, if there is one."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(SQL["hungry"], {"group_number": group_number})
            row = await cursor.fetchone()
        return None if row is None else row["due_in_seconds"]


def _worth_waiting(answer: ClaimAnswer, request: ClaimTasks) -> bool:
    return request.wait_seconds > 0 and not answer.tasks and answer.standing is LeaseStanding.ACTIVE


def _claimed(row: Mapping[str, Any]) -> ClaimedTask:
    return ClaimedTask(
        task_id=row["id"],
        attempt=row["attempt"],
        spec=Raw(row["spec"].encode()),
        alone=row["lost_count"] >= LOST_ALONE,
    )
