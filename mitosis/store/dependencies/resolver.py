"""Resolves children right after their parents have ended, in each API process (protocol P14)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mitosis.concurrency import cancel_and_wait, raise_if_cancelled
from mitosis.contracts.errors import MitosisError
from mitosis.store.dependencies.resolve import resolve_all, resolve_group
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
        try:
            if groups is None:
                await resolve_all(store)
            for group in sorted(groups or ()):
                await resolve_group(store, group)
        except MitosisError as error:
            log.warning("dependencies.failed", extra={"reason": error.message})
            store.listening.ended_parents.add_all()
            await asyncio.sleep(AFTER_FAILURE_SECONDS)
