"""The results of a group in the order in which they were recorded, for whoever follows along.

``task_result.seq`` counts 1, 2, 3 … within a group in the order of commits, without gaps: it is given
under the lock of ``group_live``. So a reader that has seen up to a number has missed nothing before it.
"""

import time
from datetime import timedelta
from uuid import UUID

from mitosis.contracts.errors import NotFound
from mitosis.contracts.http import ResultsPage
from mitosis.contracts.lifecycle import TASK_GROUP, TaskGroupState
from mitosis.store.pg.database import Database
from mitosis.store.pg.paging import page_limit
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic, Wake
from mitosis.store.tasks.task_views import MAX_PAGE, some

SQL = load("tasks/task_views.sql")


async def results_after(
    database: Database,
    wake: Wake | None,
    task_group_id: UUID,
    *,
    after: int,
    limit: int,
    timeout: timedelta,
) -> ResultsPage:
    """See :meth:`mitosis.store.tasks.tasks.TaskStore.results`."""
    deadline = time.monotonic() + timeout.total_seconds()
    size = page_limit(limit, MAX_PAGE)
    number, page = await read_results(database, task_group_id, after, size)
    if _worth_answering(page) or wake is None or timeout <= timedelta(0):
        return page
    with wake.waiter(number, Topic.CHANGED) as waiter:
        while True:
            await watch_group(database, number)
            _, page = await read_results(database, task_group_id, after, size)
            left = deadline - time.monotonic()
            if _worth_answering(page) or left <= 0:
                return page
            await waiter.wait(left)


def _worth_answering(page: ResultsPage) -> bool:
    return bool(page.items) or page.finished


async def watch_group(database: Database, group_number: int) -> None:
    """Ask that the next change of this group be told; look at it afterwards."""
    async with database.connection() as connection:
        await connection.execute(SQL["watch"], {"group_number": group_number})


async def read_results(
    database: Database, task_group_id: UUID, after: int, size: int
) -> tuple[int, ResultsPage]:
    """The number of the group, and one page. The group is read first: what ended since is in the page.

    Raises:
        NotFound: no such group.
    """
    async with database.connection() as connection:
        cursor = await connection.execute(SQL["followed"], {"group": task_group_id})
        group = await cursor.fetchone()
        if group is None:
            raise NotFound("no such task group", task_group_id=str(task_group_id))
        key = {"group_number": group["number"], "after": after, "limit": size}
        found = await (await connection.execute(SQL["results_after"], key)).fetchall()
        ids = [row["id"] for row in found]
        tasks = await some(connection, group["number"], ids)
    items = sorted(tasks, key=lambda task: task.seq or 0)
    last = found[-1]["seq"] if found else after
    over = TaskGroupState(group["state"]) in TASK_GROUP.terminal and group["unfinished"] == 0
    return group["number"], ResultsPage(
        items=items, after=last, finished=over and last >= group["ended"]
    )
