"""Waiting for changes of a task group: its events, and the long poll for one of them.

A reader is woken by P7 and then reads the group and the results after its cursor. Nothing is queued:
a slow reader finds one newest snapshot and the same results.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mitosis.contracts.following import GroupEvent
from mitosis.contracts.http import TaskGroupInfo, TaskInfo
from mitosis.contracts.queries import Until
from mitosis.store.groups.changes import events_between, has_changed, is_reached
from mitosis.store.groups.views import read_group
from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store
from mitosis.store.tasks.group import watch_group
from mitosis.store.tasks.results import read_results

PAGE = 200
PACE_SECONDS = 0.1
"""Minimum seconds between two reads for one follower, however often the group changes."""
LOOK_AGAIN_SECONDS = 0.05
"""Minimum seconds between two reads of one long poll, however often the group changes."""
REFRESH_SECONDS = 10.0
"""How often fields that change with the clock (rate, estimate, why it waits) are sent."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A group, and a page of its results behind a cursor."""

    group: TaskGroupInfo
    results: Sequence[TaskInfo] = ()
    is_last: bool = False
    """The group is settled and these are all its results."""


async def wait_for_group(
    store: Store, task_group_id: UUID, until: Until, timeout: timedelta
) -> TaskGroupInfo:
    """Return the group as soon as it changed, became terminal or settled; after ``timeout`` as it is.

    Holds no connection while it waits. Without ``store.wake`` it looks once.

    Raises:
        NotFound: there is no such group.
    """
    first = await read_group(store, task_group_id)
    if is_reached(until, first, first) or store.wake is None:
        return first

    async def look() -> TaskGroupInfo:
        return await read_group(store, task_group_id)

    async def watch() -> None:
        await watch_group(store.database, first.number)

    with store.wake.waiter(first.number, Topic.CHANGED, pace_seconds=LOOK_AGAIN_SECONDS) as waiter:
        return await look_until(
            waiter,
            lambda now: is_reached(until, first, now),
            look,
            seconds=timeout.total_seconds(),
            arm=watch if until == "changed" else None,
        )


async def group_events(
    store: Store, task_group_id: UUID, *, after: int = 0, results: bool = True
) -> AsyncGenerator[GroupEvent]:
    """Yield all further events of a group, and its results after number ``after``.

    Ends with the event ``end`` when the group is settled and all results are sent. Holds no connection
    while it waits. Needs ``store.wake``.

    Raises:
        NotFound: there is no such group.
        DatabaseUnavailable: follow again behind the last cursor.
    """
    if store.wake is None:
        raise ValueError("a store that does not listen has no events")
    number = (await read_group(store, task_group_id)).number
    follower = _Follower(store, task_group_id, number, results=results, after=after)
    with store.wake.waiter(number, Topic.CHANGED, pace_seconds=PACE_SECONDS) as waiter:
        while True:
            seen = await look_until(
                waiter,
                follower.has_news,
                follower.look,
                seconds=REFRESH_SECONDS,
                arm=follower.watch,
            )
            for event in follower.events(seen):
                yield event
            if seen.is_last:
                return
            if len(seen.results) < PAGE:
                await asyncio.sleep(PACE_SECONDS)


@dataclass(slots=True)
class _Follower:
    """One reader of the events of a group, and what it has seen so far."""

    store: Store
    task_group_id: UUID
    number: int
    _: KW_ONLY
    results: bool
    after: int
    """The number of the last result."""
    before: TaskGroupInfo | None = None

    async def watch(self) -> None:
        await watch_group(self.store.database, self.number)

    async def look(self) -> _Look:
        """Read the group first, so that the results of a settled group are all there."""
        group = await read_group(self.store, self.task_group_id)
        if not self.results:
            return _Look(group, is_last=group.settled)
        database = self.store.database
        _, page = await read_results(database, self.task_group_id, self.after, PAGE)
        return _Look(group, page.items, is_last=group.settled and page.finished)

    def has_news(self, seen: _Look) -> bool:
        """Return whether the look differs from the one before in more than the clock."""
        is_new = self.before is None or has_changed(self.before, seen.group)
        return is_new or bool(seen.results) or seen.is_last

    def events(self, seen: _Look) -> Iterator[GroupEvent]:
        """Yield what is new in a look, then the end if it is the last one."""
        stale = not self.has_news(seen)
        for task in seen.results:
            self.after = task.seq or self.after
            yield GroupEvent(kind="result", cursor=self.after, at=datetime.now(UTC), result=task)
        yield from events_between(self.before, seen.group, self.after, stale=stale)
        self.before = seen.group
        if seen.is_last:
            yield GroupEvent(kind="end", cursor=self.after, at=datetime.now(UTC), group=seen.group)
