"""Resolves children right after their parents have ended, in each API process (protocol P14)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mitosis.concurrency import cancel_and_wait, raise_if_cancelled
from mitosis.store.dependencies.resolve import resolve_all, resolve_groups
from mitosis.store.store import Store

log = logging.getLogger(__name__)

AFTER_FAILURE_SECONDS = 1.0


@asynccontextmanager
async def resolving_dependencies(store: Store) -> AsyncIterator[None]:
    """Resolve children whenever a parent has ended, while the context is open."""
    task = asyncio.create_task(_resolve_for_ever(store), name="dependencies")
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def _resolve_for_ever(store: Store) -> None:
    while True:
        groups = await store.listening.ended_parents.take()
        raise_if_cancelled()
        ended = store.listening.ended_parents
        try:
            if groups is None:
                failed = await resolve_all(store)
            else:
                failed = await resolve_groups(store, sorted(groups))
        except Exception as error:  # noqa: BLE001 - this task ends with the API only
            log.warning("dependencies.failed", extra={"reason": str(error)})
            ended.add_all()
            await asyncio.sleep(AFTER_FAILURE_SECONDS)
            continue
        if failed:
            await asyncio.sleep(AFTER_FAILURE_SECONDS)
            for group in failed:
                ended.add(group)
