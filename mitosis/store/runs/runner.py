"""Carries on runs right after tasks of their steps have ended, in each API process (protocol P15)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mitosis.concurrency import cancel_and_wait, raise_if_cancelled
from mitosis.store.runs.advance import advance_due, advance_runs_of
from mitosis.store.store import Store

log = logging.getLogger(__name__)

AFTER_FAILURE_SECONDS = 1.0


@asynccontextmanager
async def carrying_on_runs(store: Store) -> AsyncIterator[None]:
    """Carry on a run whenever a task of it has ended, while the context is open."""
    task = asyncio.create_task(_carry_on_for_ever(store), name="runs")
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def _carry_on_for_ever(store: Store) -> None:
    while True:
        ended = store.listening.ended_steps
        steps = await ended.take()
        raise_if_cancelled()
        try:
            if steps is None:
                failed = await advance_due(store)
            else:
                failed = await advance_runs_of(store, sorted(steps))
        except Exception as error:  # noqa: BLE001 - this task ends with the API only
            log.warning("runs.failed", extra={"reason": str(error)})
            failed = [0]
        if failed:
            await asyncio.sleep(AFTER_FAILURE_SECONDS)
            ended.add_all()
