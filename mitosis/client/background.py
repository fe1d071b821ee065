"""Background tasks of an SDK object. A program may close their event loop at any moment."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def background(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """Start a task that asyncio does not log about when its event loop is closed before its end.

    The object that owns the task reports the failure. asyncio does the same for the futures of ``gather``.
    """
    task = asyncio.create_task(work)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way
    return task
