"""Work that an SDK object does beside its program, and that a program may leave at any moment."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def background(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """A task that is silent when its event loop is closed under it: what it works for tells its end.

    asyncio does the same with the futures that its ``gather`` makes.
    """
    task = asyncio.create_task(work)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way
    return task
