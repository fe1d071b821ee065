"""Waiting for changes of a task group: its events, and the long poll for one of them.

A reader is woken by P7 and then reads the group and the results behind its cursor. Nothing is queued:
a slow reader finds one newest snapshot and the same results.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mitosis.contracts.following import GroupEvent
from mitosis.contracts.http import TaskGroupInfo
from mitosis.contracts.queries import Until
from mitosis.store.groups.changes import events_between, is_reached
from mitosis.store.groups.views import read_group
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store
from mitosis.store.tasks.group import watch_group
from mitosis.store.tasks.results import read_results

PAGE = 200
PACE_SECONDS = 0.1
"""Between two looks of one follower, however often the group changes."""
LOOK_AGAIN_SECONDS = 0.05
"""Between two looks of one long poll, however often the group changes."""
REFRESH_SECONDS = 10.0
"""Fields that move by the clock alone (rate, estimate, why it waits) are sent this often."""


async def wait_for_group(
    store: Store, task_group_id: UUID, until: Until, timeout: timedelta
) -> TaskGroupInfo:
    """Return the group as soon as it changed, became terminal or settled; after ``timeout`` as it is.

    Holds no connection while it waits. Without ``store.wake`` it looks once.

    Raises:
        NotFound: there is no such group.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    first = await read_group(store, task_group_id)
    if is_reached(until, first, first) or store.wake is None:
        return first
    with store.wake.waiter(first.number, Topic.CHANGED) as waiter:
        while True:
            if until == "changed":
                await watch_group(store.database, first.number)
            now = await read_group(store, task_group_id)
            left = deadline - time.monotonic()
            if is_reached(until, first, now) or left <= 0:
                return now
            await waiter.wait(left)
            await asyncio.sleep(min(LOOK_AGAIN_SECONDS, left))


async def group_events(
    store: Store, task_group_id: UUID, *, after: int = 0, results: bool = True
) -> AsyncGenerator[GroupEvent]:
    """Yield everything that happens to a group from now on, and its results behind number ``after``.

    Ends with the event ``end`` when the group is settled and all results are sent. Holds no connection
    while it waits. Needs ``store.wake``.

    Raises:
        NotFound: there is no such group.
        DatabaseUnavailable: follow again behind the last cursor.
    """
    if store.wake is None:
        raise ValueError("a store that does not listen has no events")
    first = await read_group(store, task_group_id)
    before: TaskGroupInfo | None = None
    stale = False
    with store.wake.waiter(first.number, Topic.CHANGED) as waiter:
        while True:
            await watch_group(store.database, first.number)
            group = await read_group(store, task_group_id)
            page = (
                (await read_results(store.database, task_group_id, after, PAGE))[1]
                if results
                else None
            )
            for task in page.items if page else ():
                after = task.seq or after
                yield GroupEvent(kind="result", cursor=after, at=datetime.now(UTC), result=task)
            for event in events_between(before, group, after, stale=stale):
                yield event
            before = group
            if page is not None and len(page.items) == PAGE:
                continue
            if group.settled and (page is None or page.finished):
                yield GroupEvent(kind="end", cursor=after, at=datetime.now(UTC), group=group)
                return
            stale = not await waiter.wait(REFRESH_SECONDS)
            await asyncio.sleep(PACE_SECONDS)
