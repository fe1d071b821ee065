"""Hosts whose tasks fail: suspected, quarantined, excused; the tasks get their attempts back (C-33)."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.views import get_manager, observe_manager
from tests.support.campaigns import Host, World, failed, world

PHASES = "SELECT phase FROM host_failures WHERE kind = 'tasks_failed'"


async def hosts_on(w: World, group: UUID, count: int) -> list[Host]:
    hosts = [await w.host() for _ in range(count)]
    await assign_round(w.store)
    for host in hosts:
        await host.take(group)
    return hosts


async def many(w: World, group: UUID, count: int, retries: int = 0) -> None:
    retry = RetryPolicy(max_attempts=retries + 1)
    await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=retry)] * count)


async def fail_all(host: Host, tasks: Sequence[ClaimedTask]) -> None:
    await host.report(*(failed(task, exit_code=42) for task in tasks))


async def phase(w: World) -> str | None:
    return str(found) if (found := await w.value(PHASES)) else None


@pytest.mark.spec("C-33")
@pytest.mark.parametrize("retries", [0, 2, 5])
async def test_a_host_whose_tasks_succeed_elsewhere_is_quarantined_and_no_task_is_charged(
    database: str, retries: int
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 60, retries)
        bad, good = await hosts_on(w, group, 2)
        await fail_all(bad, (await bad.claim(20)).tasks)
        assert await phase(w) == "suspected"
        assert (await bad.claim(20)).tasks == []
        rounds = 0
        while (await read_group(w.store, group)).tasks_unfinished:
            rounds += 1
            assert rounds < 60
            await good.finish((await good.claim(7)).tasks)
            await fail_all(bad, (await bad.claim(20)).tasks)
        info = await read_group(w.store, group)
        assert (info.tasks_succeeded, info.tasks_failed) == (60, 0)
        assert await phase(w) == "quarantined"
        (shown,) = (await get_manager(w.store, bad.manager_id)).failures
        assert "release-quarantine" in shown.line
        await w.check()
        assert await w.value("SELECT bool_and(forgiven) FROM task_failures")
        await assign_round(w.store)
        lease = (await observe_manager(w.store, bad.manager_id)).lease
        assert lease is not None
        assert (lease.state, lease.end_reason) == ("ending", "quarantined")
