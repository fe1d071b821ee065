"""The calls that cancel single tasks; :class:`Client` has them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from mitosis.client.output_calls import task_path
from mitosis.client.parameters import grace_seconds, model
from mitosis.client.port import Group, path_of
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.task_cancel import (
    MAX_CANCELLED_TASKS,
    CancelledTask,
    CancelledTasks,
    CancelTask,
    CancelTasks,
    TaskFilter,
)


class CancelCalls(RepeatedCalls):
    """Cancels of single tasks, of lists, and by filter. Repeating one changes nothing more."""

    async def cancel_task(
        self, task_uuid: UUID, *, reason: str | None = None, grace: timedelta | None = None
    ) -> CancelledTask:
        """Cancel one task. A running one is stopped with grace; the result of an ended one stays."""
        body = CancelTask(reason=reason, grace_seconds=grace_seconds(grace))
        return await self._post(CancelledTask, task_path(task_uuid) + "/cancel", body)

    async def cancel_tasks(
        self,
        group: Group,
        tasks: Sequence[int] | TaskFilter | Mapping[str, Any],
        *,
        reason: str | None = None,
        grace: timedelta | None = None,
        dry_run: bool = False,
    ) -> CancelledTasks:
        """Cancel the tasks with these numbers, or all unfinished ones that a filter names.

        Running tasks are stopped with grace, others never start, and the results of ended ones stay.

        Args:
            group: of the tasks.
            tasks: numbers, or a filter; ``TaskFilter()`` is every unfinished task.
            reason: stored with each task.
            grace: from SIGTERM to SIGKILL; None: that of the group.
            dry_run: only count.
        """
        how: dict[str, Any] = {
            "reason": reason,
            "grace_seconds": grace_seconds(grace),
            "dry_run": dry_run,
        }
        done = CancelledTasks(cancelled=0, stopping=0)
        if isinstance(tasks, TaskFilter | Mapping):
            body = CancelTasks(filter=model(TaskFilter, tasks, "tasks"), **how)
            following: int | None = 0
            while following is not None:
                part = await self._cancel(group, body.model_copy(update={"after": following}))
                done, following = _sum(done, part), part.next
            return done
        numbers = list(tasks)
        for first in range(0, len(numbers), MAX_CANCELLED_TASKS):
            some = tuple(numbers[first : first + MAX_CANCELLED_TASKS])
            done = _sum(done, await self._cancel(group, CancelTasks(task_ids=some, **how)))
        return done

    async def _cancel(self, group: Group, body: CancelTasks) -> CancelledTasks:
        return await self._post(CancelledTasks, path_of(group) + "/cancel-tasks", body)


def _sum(one: CancelledTasks, other: CancelledTasks) -> CancelledTasks:
    return CancelledTasks(
        cancelled=one.cancelled + other.cancelled,
        stopping=one.stopping + other.stopping,
        ended=one.ended + other.ended,
        unknown=one.unknown + other.unknown,
        tasks=[*one.tasks, *other.tasks],
    )
