"""The events of a task group, made of what PostgreSQL says now and said at the last look.

Woken by P7 and nothing else; whoever is told of a change reads the group and the results behind the
cursor. So nothing is queued for a reader: one that is slow finds one newest snapshot and the same results.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from uuid import UUID

from mitosis.contracts.following import GroupEvent, LeaseChange, StateChange
from mitosis.contracts.http import HookRunInfo, LeaseInfo, ResultsPage, TaskGroupInfo
from mitosis.store.groups import group_views
from mitosis.store.pg.database import Database
from mitosis.store.pg.wake import Topic, Wake
from mitosis.store.store import Store
from mitosis.store.tasks.results import read_results, watch_group

PAGE = 200
PACE_SECONDS = 0.1
"""Between two looks of one follower, however often the group changes."""
REFRESH_SECONDS = 10.0
"""What changes by the clock alone (rate, estimate, why it waits) is told again this often."""

_BY_CLOCK = {"tasks_per_second", "estimated_completion_at", "leases"}


async def group_events(
    store: Store, wake: Wake, task_group_id: UUID, *, after: int = 0, results: bool = True
) -> AsyncGenerator[GroupEvent]:
    """Everything that happens to a group from now on, and its results behind number ``after``.

    Ends with the event ``end`` when the group is settled and all results are told. Holds no
    connection while it waits.

    Raises:
        NotFound: no such group.
        DatabaseUnavailable: follow again behind the last cursor.
    """
    first = await group_views.one(store, task_group_id)
    before: TaskGroupInfo | None = None
    stale = False
    with wake.waiter(first.number, Topic.CHANGED) as waiter:
        while True:
            await watch_group(store.database, first.number)
            group = (await group_views.one(store, task_group_id)).info
            page = await _page(store.database, task_group_id, after) if results else None
            for task in page.items if page else ():
                after = task.seq or after
                yield GroupEvent(kind="result", cursor=after, at=_now(), result=task)
            for event in changes(before, group, after, stale=stale):
                yield event
            before = group
            if page is not None and len(page.items) == PAGE:
                continue
            if group.settled and (page is None or page.finished):
                yield GroupEvent(kind="end", cursor=after, at=_now(), group=group)
                return
            stale = not await waiter.wait(REFRESH_SECONDS)
            await asyncio.sleep(PACE_SECONDS)


def changes(
    before: TaskGroupInfo | None, group: TaskGroupInfo, cursor: int, *, stale: bool = False
) -> Iterator[GroupEvent]:
    """What differs between two looks at a group, its snapshot last; all of it is new at the first look.

    ``stale``: the last snapshot is so old that another is due in any case.
    """
    at = _now()
    edge = (group.state, group.settled)
    if before is None or (before.state, before.settled) != edge:
        change = StateChange(
            before=None if before is None else before.state,
            state=group.state,
            settled=group.settled,
            result=group.result,
            reason=group.reason,
        )
        yield GroupEvent(kind="state", cursor=cursor, at=at, state=change)
    for lease_change in _lease_changes(before.leases if before else [], group.leases):
        yield GroupEvent(kind="lease", cursor=cursor, at=at, lease=lease_change)
    told = {_which(run): run.state for run in before.hook_runs} if before else {}
    for run in group.hook_runs:
        if told.get(_which(run)) != run.state:
            yield GroupEvent(kind="hook", cursor=cursor, at=at, hook=run)
    if before is None or stale or _essence(before) != _essence(group):
        yield GroupEvent(kind="group", cursor=cursor, at=at, group=group)


def _lease_changes(before: list[LeaseInfo], now: list[LeaseInfo]) -> Iterator[LeaseChange]:
    known = {lease.epoch: lease for lease in before}
    for lease in now:
        old = known.pop(lease.epoch, None)
        if old is None or old.state != lease.state:
            yield _lease_change(lease, old.state if old else None, lease.state)
    for lease in known.values():
        yield _lease_change(lease, lease.state, "ended")


def _lease_change(lease: LeaseInfo, before: str | None, state: str) -> LeaseChange:
    return LeaseChange(manager_name=lease.manager_name, before=before, state=state, lease=lease)


def _which(run: HookRunInfo) -> tuple[str, str, datetime]:
    return run.kind, run.manager_name, run.started_at


def _essence(group: TaskGroupInfo) -> object:
    """What counts as a change: all but what the clock alone moves."""
    leases = [(lease.epoch, lease.state) for lease in group.leases]
    return group.model_dump(exclude=_BY_CLOCK), leases


async def _page(database: Database, task_group_id: UUID, after: int) -> ResultsPage:
    return (await read_results(database, task_group_id, after, PAGE))[1]


def _now() -> datetime:
    return datetime.now(UTC)
