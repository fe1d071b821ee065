"""A part of this process in a task of its own, which may be left behind when it does not end."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class KeptService(Generic[T]):
    """Enters and exits a context in one task, as structured concurrency inside it needs."""

    def __init__(self, service: AbstractAsyncContextManager[T]) -> None:
        self._service = service
        self._entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> T:
        """Enter the context and return its value; an error of its start is raised here."""
        task = self._task = asyncio.create_task(self._keep(), name="service")
        either: set[asyncio.Future[Any]] = {task, self._entered}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.done():
            task.result()
        return self._entered.result()

    async def leave(self, seconds: float) -> bool:
        """Exit the context; return False if that takes longer. Cancelled, it interrupts the exit."""
        task = self._task
        if task is None:
            return True
        self._leave.set()
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            task.result()
        else:
            task.cancel()
        return bool(done)

    async def _keep(self) -> None:
        async with self._service as value:
            self._entered.set_result(value)
            await self._leave.wait()
