"""Heartbeats of a running activity, so that Temporal notices soon when its worker is killed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

from mitosis.concurrency import cancel_and_wait

EVERY_SECONDS = 1.0


@asynccontextmanager
async def heartbeats(details: Callable[[], Any] | None = None) -> AsyncIterator[None]:
    """Heartbeat the current activity once a second while the block runs; a short block never does.

    Args:
        details: called for each heartbeat; Temporal shows the result.
    """
    heartbeating = asyncio.create_task(_heartbeat_for_ever(details), name="heartbeats")
    try:
        yield
    finally:
        await cancel_and_wait(heartbeating)


async def _heartbeat_for_ever(details: Callable[[], Any] | None) -> None:
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        activity.heartbeat(*([details()] if details is not None else []))
