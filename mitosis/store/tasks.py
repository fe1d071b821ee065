"""Tasks: submit, claim, report, and what people see of them.

Submit, claim and report are the hot path: one statement each for a whole batch
(``sql/tasks.sql``), never one per task.
"""

from uuid import UUID

from mitosis.contracts.http import Page, TaskInfo
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimTasks,
    ReportAnswer,
    ReportTasks,
    SubmitAnswer,
    SubmitTasks,
)
from mitosis.store.database import Database
from mitosis.store.wake import Wake


class TaskStore:
    """All access to tasks."""

    def __init__(self, database: Database, wake: Wake | None = None) -> None:
        """Without ``wake`` an empty claim answers at once, whatever ``wait_seconds`` says."""
        self._database = database
        self._wake = wake

    async def submit(self, task_group_id: UUID, request: SubmitTasks) -> SubmitAnswer:
        """Add up to 10,000 tasks, all or nothing (protocol P11).

        The caller has checked permission. Checks the tasks themselves.

        Raises:
            NotFound: no such group.
            TaskGroupClosed: the group accepts none.
            InvalidRequest: a task is not valid; names it by index.
            TooLarge: too many tasks, or a spec that is too large.
        """
        raise NotImplementedError

    async def claim(self, manager_id: UUID, request: ClaimTasks) -> ClaimAnswer:
        """Take tasks under a live epoch; waits up to ``wait_seconds`` holding no connection (P3, P7)."""
        raise NotImplementedError

    async def report(self, manager_id: UUID, request: ReportTasks) -> ReportAnswer:
        """Record how attempts ended; says per task what became of the report (P2, P3).

        Accepted by attempt, also under an epoch that has ended.

        Raises:
            TooLarge: more than ``wire.MAX_REPORTS``.
        """
        raise NotImplementedError

    async def list(
        self,
        task_group_id: UUID,
        *,
        state: TaskState | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page[TaskInfo]:
        """Tasks of a group by id, without ``failures``. ``limit`` at most 1,000.

        Raises:
            NotFound: no such group.
            InvalidRequest: ``after`` is not from an earlier page.
        """
        raise NotImplementedError

    async def get(self, task_uuid: UUID) -> TaskInfo:
        """One task with its spec, result and every failed attempt.

        Raises:
            NotFound: no such task.
        """
        raise NotImplementedError
