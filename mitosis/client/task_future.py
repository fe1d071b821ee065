"""The future of a task in an asyncio program."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from mitosis.client.dispatch import Call
from mitosis.contracts.http import TaskInfo

R = TypeVar("R")


class TaskFuture(asyncio.Future[R]):
    """The result of one task, an :mod:`asyncio` future.

    :meth:`cancel` cancels the task too: it never starts, or is stopped with the grace of the group. So does a
    timeout of :func:`asyncio.wait_for`; with :func:`asyncio.shield` the task goes on.
    """

    task: TaskInfo | None = None
    """The task with all its details, once it has ended."""
    withdraw: Callable[[], None] | None = None
    """Cancels the task."""
    call: Call | None = None
    """Its call, which others may depend on."""

    def cancel(self, msg: Any = None) -> bool:
        """Cancel future and task; return False if the task has ended."""
        cancelled = super().cancel(msg)
        if cancelled and self.withdraw is not None:
            self.withdraw()
        return cancelled


def resolve_future(
    future: Any, ended: TaskInfo | Exception, convert: Callable[[TaskInfo], Any]
) -> None:
    """Set the result or exception of a future of either kind."""
    if isinstance(ended, Exception):
        future.set_exception(ended)
        return
    future.task = ended
    try:
        future.set_result(convert(ended))
    except Exception as error:  # noqa: BLE001 - awaiting the future raises it
        future.set_exception(error)
