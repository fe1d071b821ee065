"""The results of a group in the order in which they were recorded, for readers that follow it.

``task_result.seq`` counts 1, 2, 3 … within a group in the order of commits, without gaps: it is assigned
under the lock of ``group_live``. So a reader that has read up to a number has missed no earlier result.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from mitosis.contracts.http import ResultsPage
from mitosis.contracts.lifecycle import TASK_GROUP
from mitosis.store.pg.database import Database
from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.paging import page_limit
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_progress, watch_group
from mitosis.store.tasks.views import MAX_PAGE, read_tasks

SQL = load("tasks/results.sql")


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A row of ``results_after``."""

    id: int
    seq: int


async def wait_for_results(
    store: Store,
    task_group_id: UUID,
    *,
    after: int = 0,
    limit: int = 100,
    timeout: timedelta = timedelta(0),
) -> ResultsPage:
    """Return the results recorded after number ``after``; wait up to ``timeout`` for the next one.

    ``limit`` at most 1,000. Holds no connection while it waits.

    Raises:
        NotFound: no such group.
    """
    size = page_limit(limit, MAX_PAGE)
    number, page = await read_results(store.database, task_group_id, after, size)
    if _has_news(page) or store.wake is None or timeout <= timedelta(0):
        return page

    async def look() -> ResultsPage:
        return (await read_results(store.database, task_group_id, after, size))[1]

    async def watch() -> None:
        await watch_group(store.database, number)

    with store.wake.waiter(number, Topic.CHANGED) as waiter:
        return await look_until(
            waiter,
            _has_news,
            look,
            seconds=timeout.total_seconds(),
            arm=watch,
        )


async def read_results(
    database: Database, task_group_id: UUID, after: int, size: int
) -> tuple[int, ResultsPage]:
    """Return the number of the group, and one page.

    The group is read first, so everything that had ended by then is in the page.

    Raises:
        NotFound: no such group.
    """
    async with database.connection() as connection:
        group = await group_progress(connection, task_group_id)
        key = {"group_number": group.number, "after": after, "limit": size}
        found = await fetch_all(connection, _Recorded, SQL["results_after"], key)
        tasks = await read_tasks(connection, group.number, [row.id for row in found])
    items = sorted(tasks, key=lambda task: task.seq or 0)
    last = found[-1].seq if found else after
    over = group.state in TASK_GROUP.terminal and group.unfinished == 0
    return group.number, ResultsPage(items=items, after=last, finished=over and last >= group.ended)


def _has_news(page: ResultsPage) -> bool:
    return bool(page.items) or page.finished
