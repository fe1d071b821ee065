"""The calls of a client that a task group in a program uses."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from mitosis.client.parameters import Group, group_reference
from mitosis.client.submitting import Part, Tasks
from mitosis.contracts.http import ResultsPage, TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.queries import Until
from mitosis.contracts.task_cancel import CancelledTasks
from mitosis.contracts.wire import SubmitAnswer

__all__ = ["Group", "GroupCalls", "Until", "path_of", "reached"]


def path_of(group: Group) -> str:
    """Return the path of a task group. Names need no quoting, and ``group/name`` stays two segments.

    Raises:
        InvalidRequest: the text is not a reference to a task group.
    """
    return f"/task-groups/{group_reference(group)}"


def reached(info: TaskGroupInfo, until: Until) -> bool:
    """Return whether a wait is over; False for ``changed``, which needs two snapshots."""
    ended = info.state in (TaskGroupState.COMPLETE, TaskGroupState.CANCELLED)
    return info.settled if until == "settled" else ended


class GroupCalls(Protocol):
    """The calls of :class:`~mitosis.client.client.Client` about one group."""

    give_up_after: timedelta

    async def create_group(self, spec: TaskGroupSpec) -> TaskGroupInfo: ...

    async def group(self, group: Group) -> TaskGroupInfo: ...

    async def close_group(self, group: Group, *, reason: str | None = None) -> TaskGroupInfo: ...

    async def cancel(
        self,
        group: Group,
        *,
        reason: str | None = None,
        cancel_running_tasks: bool = True,
        grace: timedelta | None = None,
    ) -> TaskGroupInfo: ...

    async def wait(
        self, group: Group, *, until: Until = "settled", timeout: timedelta | None = None
    ) -> TaskGroupInfo: ...

    async def submit(
        self,
        group: Group,
        tasks: Tasks,
        *,
        idempotency_key: str | None = None,
        require_worker: bool = False,
    ) -> list[int]: ...

    async def submit_part(self, group: Group, part: Part) -> SubmitAnswer: ...

    async def cancel_tasks(self, group: Group, tasks: Sequence[int]) -> CancelledTasks: ...

    async def results_page(
        self, group: Group, *, after: int = 0, wait: timedelta = timedelta()
    ) -> ResultsPage: ...
