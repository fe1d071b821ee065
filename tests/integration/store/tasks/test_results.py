"""Results in the order of commits: numbered without gaps, none missed by whoever follows along."""

import asyncio
from datetime import timedelta

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.store.managers.release import release_lease
from mitosis.store.tasks.results import wait_for_results
from tests.support.campaigns import failed, succeeded, world

NOW = timedelta(0)
SOON = timedelta(seconds=20)


@pytest.mark.spec("S000-116")
async def test_a_follower_sees_every_result_once_whoever_reports_beside(database: str) -> None:
    async with world(database) as w:
        group = await w.group(worker_allocation_plan={"worker_count": 1})
        submitted = (await w.submit(group, 120)).task_ids
        hosts = [await w.leased_host(group) for _ in range(3)]

        async def work(number: int) -> None:
            host, done = hosts[number], 0
            while tasks := (await host.claim(7)).tasks:
                done += len(tasks)
                assert done <= 120, "a task was claimed twice"
                report = failed if number == 2 else succeeded
                await host.report(*(report(task) for task in tasks))

        async def follow() -> list[tuple[int | None, int]]:
            seen: list[tuple[int | None, int]] = []
            after = 0
            while len(seen) < len(submitted):
                page = await wait_for_results(w.store, group, after=after, limit=9, timeout=SOON)
                seen += [(task.seq, task.task_id) for task in page.items]
                after = page.after
            return seen

        following = asyncio.create_task(follow())
        await asyncio.gather(*(work(number) for number in range(3)))
        seen = await following
        assert [seq for seq, _ in seen] == list(range(1, 121))
        assert sorted(task_id for _, task_id in seen) == submitted


async def test_a_waiting_follower_is_told_at_the_next_result_and_at_the_end(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        first, second = (await host.claim()).tasks
        waiting = asyncio.create_task(wait_for_results(w.store, group, timeout=SOON))
        await host.finish([first])
        page = await waiting
        assert ([task.task_id for task in page.items], page.finished) == ([first.task_id], False)

        await host.finish([second])
        await w.close(group)
        page = await wait_for_results(w.store, group, after=page.after, timeout=NOW)
        assert ([task.task_id for task in page.items], page.finished) == ([second.task_id], False)
        waiting = asyncio.create_task(
            wait_for_results(w.store, group, after=page.after, timeout=SOON)
        )
        await w.control.finalize(group)
        assert (await waiting).finished


async def test_cancelled_and_lost_tasks_are_numbered_like_all_others(database: str) -> None:
    async with world(database, host_lost_after=timedelta(seconds=10)) as w:
        group = await w.group()
        await w.submit(group, 4)
        host = await w.leased_host(group)
        done, lost = (await host.claim(2)).tasks
        await host.finish([done])
        await host.renew(started=[lost])
        await w.rows("UPDATE open_task SET lost_count = 2 WHERE state = 1")
        await w.rows("UPDATE leases SET alive_until = now() - interval '1 second'")
        await release_lease(
            w.store,
            ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST),
        )
        await w.cancel(group)
        await w.control.discard(group)
        page = await wait_for_results(w.store, group)
        assert [task.seq for task in page.items] == [1, 2, 3, 4]
        assert [str(task.state) for task in page.items] == [
            "succeeded",
            "failed",
            "cancelled",
            "cancelled",
        ]
        assert page.finished
