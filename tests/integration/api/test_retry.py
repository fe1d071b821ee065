"""Retry on the server: in parts, each task once, the same part twice, into groups one may write to."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mitosis.client.client import Client
from mitosis.contracts.errors import NotFound, TaskGroupClosed
from mitosis.contracts.http import RetryBody, TaskGroupSpec
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.wire import ClaimTasks, Outcome, ReportTasks, TaskReport
from mitosis.store.tasks.retry import retry_tasks
from mitosis.store.users.accounts import create_user
from tests.support.served_group import Served, served_group
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.timeout(60)
FAILED = 12
TIMED_OUT = 3


@pytest.fixture
async def served(database: str) -> AsyncIterator[Served]:
    """The group ``work`` with tasks that have failed in two ways, one that has not, one unfinished."""
    async with served_group(database, Served) as it:
        count = FAILED + TIMED_OUT + 2
        tasks = [{"command": ["say", str(n)], "labels": ["mine"]} for n in range(count)]
        await it.client.submit("work", tasks)
        await it.lease()
        await fail(it, count - 1)
        yield it


async def fail(it: Served, count: int) -> None:
    claim = ClaimTasks(epoch=it.epoch, claim_seq=1, acked_seq=0, max_tasks=count)
    tasks = (await it.manager.claim(claim)).tasks
    kinds = ["exit_code"] * FAILED + ["timeout"] * TIMED_OUT + [None]
    reports = [
        TaskReport(
            task_id=task.task_id,
            attempt=task.attempt,
            outcome=Outcome.FAILED if kind else Outcome.SUCCEEDED,
            kind=kind,
        )
        for task, kind in zip(tasks, kinds, strict=True)
    ]
    await it.manager.report_tasks(ReportTasks(epoch=it.epoch, reports=reports))


async def part(it: Served, key: str = "k", after: int = 0, limit: int = 5) -> list[int]:
    group = await it.client.group("work")
    asked = RetryBody(idempotency_key=key, after=after, limit=limit)
    uuid = group.task_group_id
    return (await retry_tasks(it.api.app_state.store, uuid, uuid, asked)).task_ids


async def test_the_same_part_is_answered_again_and_another_retry_leaves_it_out(
    served: Served,
) -> None:
    first = await part(served)
    assert len(first) == 5
    assert await part(served) == first  # its answer was lost
    assert (await served.client.group("work")).tasks_unfinished == 1 + 5
    rest = await served.client.retry("work")
    assert len(rest.retry_of) == FAILED + TIMED_OUT - 5
    assert (await served.client.retry("work")).retry_of == []
    group = await served.client.group("work")
    assert group.tasks_unfinished == 1 + FAILED + TIMED_OUT
    tasks = [task async for task in served.client.tasks("work")]
    again = {t.task_id: t for t in tasks}[rest.task_ids[0]]
    assert again.spec["labels"] == ["mine", f"retry-of:{rest.retry_of[0]}"]


async def test_two_at_once_retry_each_task_once(served: Served) -> None:
    database = served.api.app_state.store.database

    async def both_wait() -> bool:
        async with database.connection() as connection:
            waiting = "SELECT count(*) AS n FROM pg_locks WHERE NOT granted"
            row = await (await connection.execute(waiting)).fetchone()
        return row is not None and row["n"] == 2

    async with database.transaction() as connection:
        await connection.execute("SELECT FROM group_live FOR UPDATE")
        retries = [asyncio.create_task(served.client.retry("work")) for _ in range(2)]
        await wait_until_async(both_wait, 20)
    both = await asyncio.gather(*retries)
    assert sorted(len(one.retry_of) for one in both) == [0, FAILED + TIMED_OUT]
    assert (await served.client.group("work")).tasks_unfinished == 1 + FAILED + TIMED_OUT


async def test_parts_go_on_behind_the_last_and_reasons_choose(
    served: Served,
) -> None:
    timed_out = await served.client.retry("work", reasons=[FailureKind.TIMEOUT])
    assert len(timed_out.task_ids) == TIMED_OUT
    chosen = await served.client.retry("work", dry_run=True)
    assert (len(chosen.retry_of), chosen.task_ids) == (FAILED, [])
    told, after = [], 0
    group = await served.client.group("work")
    while True:
        asked = RetryBody(idempotency_key="parts", after=after, limit=5)
        answer = await retry_tasks(
            served.api.app_state.store, group.task_group_id, group.task_group_id, asked
        )
        told += answer.retry_of
        if answer.next is None:
            break
        after = answer.next
    assert told == chosen.retry_of


async def test_each_task_is_retried_once_into_whichever_group(served: Served) -> None:
    await served.client.create_group(TaskGroupSpec(name="three"))
    await served.client.close_group("three")
    with pytest.raises(TaskGroupClosed):
        await served.client.retry("work", into="three")
    await served.client.retry("work", reasons=[FailureKind.TIMEOUT])
    for name in ("one", "two"):
        await served.client.create_group(TaskGroupSpec(name=name))
    both = await asyncio.gather(
        *(served.client.retry("work", into=name) for name in ("one", "two"))
    )
    assert sum(len(retried.task_ids) for retried in both) == FAILED
    assert (await served.client.retry("work", into="two", dry_run=True)).retry_of == []


async def test_who_may_not_write_to_either_group_is_refused(served: Served) -> None:
    await create_user(served.api.app_state.store, "stranger", "secret words")
    source = (await served.client.group("work")).task_group_id
    async with Client(served.api.url) as other:
        await other.login("stranger", "secret words")
        own = await other.create_group(TaskGroupSpec(name="own"))
        with pytest.raises(NotFound):
            await other.retry(source, into=own.task_group_id)
        with pytest.raises(NotFound):
            await other.retry(own.task_group_id, into=source)
