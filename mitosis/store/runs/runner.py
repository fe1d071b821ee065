"""Carries on runs right after tasks of their steps have ended, in each API process (protocol P15)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mitosis.concurrency import cancel_and_wait, raise_if_cancelled
from mitosis.store.runs.turns import Turns
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
    turns = Turns(store, refills=False)
    ended = store.listening.ended_steps
    while True:
        steps = await ended.take(turns.pause())
        raise_if_cancelled()
        try:
            if steps is None:
                await turns.add_due()
            elif steps:
                await turns.add_steps(sorted(steps))
        except Exception as error:  # noqa: BLE001 - this task ends with the API only
            log.warning("runs.failed", extra={"reason": str(error)})
            await asyncio.sleep(AFTER_FAILURE_SECONDS)
            ended.add_all()
        else:
            await turns.take_some()
