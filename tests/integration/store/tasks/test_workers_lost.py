"""Tasks whose worker ended with its zygote: charged as for a lost host, once (protocol P5)."""

import pytest
from msgspec import Raw

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask, ReportStatus
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from mitosis.store.tasks.views import read_task
from tests.support.campaigns import Host, World, failed, world

WORDS = "the zygote of its worker ended"
DETAIL = Raw(b'{"message":"the zygote of its worker ended"}')


async def one_task(w: World) -> tuple[Host, ClaimedTask]:
    group = await w.group()
    once = RetryPolicy(max_attempts=1)
    await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=once)])
    host = await w.leased_host(group)
    (task,) = (await host.claim()).tasks
    return host, task


async def charged(w: World) -> list[tuple[int, int, int]]:
    rows = await w.rows("SELECT exit_failures, crash_failures, lost_count FROM open_task")
    return [(row["exit_failures"], row["crash_failures"], row["lost_count"]) for row in rows]


async def test_a_loss_of_all_workers_is_charged_as_a_lost_host_and_to_nothing_else(
    database: str,
) -> None:
    """Whatever the retry policy: again, again alone on its host, and at the third loss it is poison."""
    async with world(database) as w:
        host, task = await one_task(w)
        for number, alone in ((1, False), (2, False), (3, True)):
            assert (task.attempt, task.alone) == (number, alone)
            await host.report(failed(task, "workers_lost", detail=DETAIL))
            if number < 3:
                assert await charged(w) == [(0, 0, number)]
                assert not await w.rows("SELECT 1 FROM host_failures"), "no sign of a bad host"
                (task,) = (await host.claim(wait=5)).tasks
        assert await charged(w) == []
        info = await read_task(w.store, task_uuid(1, task.task_id))
        assert (info.state, info.kind) == ("failed", "workers_lost")
        assert info.detail == {
            "poison": True,
            "message": "poison: lost 3 times, the last time while nothing else ran there;"
            f" it is not tried again: {WORDS}",
        }
        assert [(f.detail or {})["message"] for f in info.failures] == [
            WORDS,
            f"lost for the second time, so from now on it runs alone on its host: {WORDS}",
            WORDS,
        ]
        await w.check()


@pytest.mark.parametrize("lost", [True, False])
async def test_what_the_end_of_a_lease_has_judged_is_not_charged_again_by_a_late_report(
    database: str, lost: bool
) -> None:
    """The report was in the journal of a host that was cut off: one loss is one, and a stop is none."""
    async with world(database) as w:
        host, task = await one_task(w)
        await host.renew(started=[task])
        if lost:
            await w.rows("UPDATE leases SET alive_until = now()")
            reason = ReleaseReason.LOST
            request = ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=reason)
            await release_lease(w.store, request)
        else:
            await say_goodbye(w.store, host.manager_id, host.epoch)
        before = await charged(w)
        assert before == [(0, 0, int(lost))]
        late = await host.report(failed(task, "workers_lost", detail=DETAIL))
        assert late.statuses == [ReportStatus.COMMITTED]
        assert await charged(w) == before
