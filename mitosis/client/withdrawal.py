"""Cancels the tasks whose futures a program has cancelled, a short moment later and many at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from mitosis.client.background import background
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.errors import MitosisError

Cancel = Callable[[Sequence[int]], Awaitable[object]]

WITHIN_SECONDS = 0.02
"""Cancels of this time go in one call. An interrupted program cancels the future that it waits for; the end
of its ``with`` block comes sooner and may keep the task."""

log = logging.getLogger(__name__)


class Withdrawals:
    """The tasks to cancel of one task group."""

    def __init__(self, cancel: Cancel) -> None:
        self._cancel = cancel
        self._tasks: list[int] = []
        self._sender: asyncio.Task[None] | None = None

    def add(self, task_id: int) -> None:
        """Cancel the task soon."""
        self._tasks.append(task_id)
        if self._sender is None or self._sender.done():
            self._sender = background(self._send())

    def drop(self) -> None:
        """Keep the tasks that have not been cancelled yet."""
        self._tasks.clear()

    async def sent(self) -> None:
        """Wait until the API has answered for every task so far."""
        if self._sender is not None:
            await asyncio.wait([self._sender])

    async def aclose(self) -> None:
        if self._sender is not None:
            await cancel_and_wait(self._sender)

    async def _send(self) -> None:
        while self._tasks:
            await asyncio.sleep(WITHIN_SECONDS)
            tasks, self._tasks = self._tasks, []
            if not tasks:
                return
            try:
                await self._cancel(tasks)
            except MitosisError as error:
                log.warning(
                    "tasks.not_cancelled", extra={"tasks": len(tasks), "reason": error.message}
                )
