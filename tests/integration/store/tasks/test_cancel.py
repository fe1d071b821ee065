"""Single tasks are cancelled in every state, against claims, reports, losses and endings."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mitosis.contracts.agent_http import AttemptList
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import InvalidRequest, NotFound
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.task_cancel import CancelledTasks, CancelTasks, TaskFilter
from mitosis.contracts.wire import Outcome, ReportStatus, StopOrder, TaskReport
from mitosis.store.groups.views import cancel_stats, read_group
from mitosis.store.managers.release import release_lease
from mitosis.store.tasks.cancel import cancel_tasks
from mitosis.store.tasks.views import list_tasks
from tests.support.campaigns import World, failed, held, stranded, until_blocked, world


async def cancel(w: World, group: UUID, *ids: int, **how: Any) -> CancelledTasks:
    return await cancel_tasks(w.store, group, CancelTasks(task_ids=ids, **how))


async def cancel_all(w: World, group: UUID, which: TaskFilter, **how: Any) -> CancelledTasks:
    return await cancel_tasks(w.store, group, CancelTasks(filter=which, **how))


def outcomes(done: CancelledTasks) -> list[str]:
    return [task.outcome.value for task in done.tasks]


async def states(w: World, group: UUID) -> list[str]:
    return [task.state.value for task in (await list_tasks(w.store, group)).items]


def stopped(stop: StopOrder, **facts: Any) -> TaskReport:
    values: dict[str, Any] = {"outcome": Outcome.CANCELLED, "kind": "cancelled"} | facts
    return TaskReport(task_id=stop.task_id, attempt=stop.attempt, **values)


@pytest.mark.spec("S000-50")
async def test_a_list_is_cancelled_in_whichever_state_its_tasks_are(database: str) -> None:
    async with world(database) as w:
        group = await w.group(cancel_grace_seconds=7.0)
        retried = TaskSubmission(
            command=["false"], retry=RetryPolicy(max_attempts=9, delay_seconds=9)
        )
        ids = (
            await w.submit_tasks(group, [retried, *[TaskSubmission(command=["true"])] * 4])
        ).task_ids
        host = await w.leased_host(group)
        delayed, ended, running, claimed = (await host.claim(4)).tasks
        await host.report(failed(delayed))
        await host.finish([ended])
        await host.renew(started=[running])
        assert await states(w, group) == ["delayed", "succeeded", "running", "ready", "ready"]
        done = await cancel(w, group, *ids, 10**9, reason="not needed")
        assert outcomes(done) == [
            "cancelled",
            "ended",
            "stopping",
            "stopping",
            "cancelled",
            "unknown",
        ]
        assert [task.state for task in done.tasks][1] is TaskState.SUCCEEDED
        assert (done.cancelled, done.stopping, done.ended, done.unknown) == (2, 2, 1, 1)
        assert await states(w, group) == ["cancelled", "succeeded", *["cancelled"] * 3]
        stops = (await host.renew()).stops
        assert {(s.task_id, s.attempt) for s in stops} == {
            (t.task_id, t.attempt) for t in (running, claimed)
        }
        assert {(s.grace_seconds, s.reason) for s in stops} == {(7.0, "not needed")}
        assert (await host.claim()).tasks == [], "nothing is claimed again"
        again = await cancel(w, group, *ids)
        assert outcomes(again) == ["ended"] * 5
        info = await read_group(w.store, group)
        assert (info.tasks_cancelled, info.tasks_succeeded, info.tasks_unfinished) == (4, 1, 0)
        await w.check()


async def test_the_last_cancelled_task_drains_a_closed_group(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 2)).task_ids
        await w.close(group)
        await w.pokes()
        await cancel(w, group, ids[0])
        assert ("task_group", group) not in await w.pokes()
        await cancel(w, group, ids[1], grace_seconds=0)
        assert ("task_group", group) in await w.pokes()
        await w.control.finalize(group)
        view = await w.control.settle(group)
        assert (view.settled, view.result, view.cancelled) == (True, "tasks_failed", 2)


async def test_a_filter_names_tasks_and_a_dry_run_counts_them(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        tasks = [
            TaskSubmission(
                command=["true"], priority=number % 3, labels=["even"] * (number % 2 == 0)
            )
            for number in range(12)
        ]
        await w.submit_tasks(group, tasks)
        host = await w.leased_host(group)
        claimed = (await host.claim(3)).tasks
        await host.renew(started=claimed[:1])
        for which, count in (
            (TaskFilter(), (9, 3)),
            (TaskFilter(states=("running",)), (0, 1)),
            (TaskFilter(states=("ready",)), (9, 2)),
            (TaskFilter(states=("delayed",)), (0, 0)),
            (TaskFilter(labels=("even",)), (4, 2)),
            (TaskFilter(min_priority=1, max_priority=1), (4, 0)),
            (TaskFilter(labels=("even",), min_priority=2), (0, 2)),
        ):
            dry = await cancel_all(w, group, which, dry_run=True)
            assert (dry.cancelled, dry.stopping) == count, which
        assert (await read_group(w.store, group)).tasks_cancelled == 0, "nothing was changed"
        shown = (await list_tasks(w.store, group)).items
        moment = shown[0].created_at
        assert (await cancel_all(w, group, TaskFilter(submitted_after=moment))).cancelled == 0
        done = await cancel_all(w, group, TaskFilter(labels=("even",), submitted_before=None))
        assert (done.cancelled, done.stopping) == (4, 2)
        left = [
            task for task in (await list_tasks(w.store, group)).items if task.state != "cancelled"
        ]
        assert all(task.spec.get("labels") is None for task in left)
        assert len(left) == 6
        await w.check()


async def test_a_list_or_a_filter_must_be_given(database: str) -> None:
    for wrong in ({}, {"task_ids": (1,), "filter": TaskFilter()}):
        with pytest.raises(InvalidRequest, match="either task_ids or filter"):
            CancelTasks(**wrong)  # type: ignore[arg-type]
    async with world(database) as w:
        with pytest.raises(NotFound):
            await cancel(w, UUID(int=5), 1)


async def test_a_cancel_waits_for_a_claim_in_flight_and_takes_its_task(database: str) -> None:
    async with world(database) as w, held(database) as other:
        group = await w.group()
        (task,) = (await w.submit(group, 1)).task_ids
        host = await w.leased_host(group)
        host.world = w.on(other)
        claimed = (await host.claim()).tasks
        cancelling = asyncio.create_task(cancel(w, group, task))
        await until_blocked(w)
        await other.commit()
        host.world = w
        assert outcomes(await cancelling) == ["stopping"], "it was claimed a moment before"
        assert [s.task_id for s in (await host.renew()).stops] == [task]
        assert (await host.finish(claimed)).statuses == [ReportStatus.SUPERSEDED]
        assert await states(w, group) == ["cancelled"]
        await w.check()


async def test_a_claim_beside_a_cancel_in_flight_finds_nothing(database: str) -> None:
    async with world(database) as w, held(database) as other:
        group = await w.group()
        (task,) = (await w.submit(group, 1)).task_ids
        host = await w.leased_host(group)
        assert outcomes(await cancel(w.on(other), group, task)) == ["cancelled"]
        assert (await host.claim()).tasks == []
        await other.commit()
        assert (await host.claim()).tasks == []
        assert (await host.renew()).stops == []


async def test_a_claim_whose_answer_was_lost_is_not_answered_again(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        (task,) = (await w.submit(group, 1)).task_ids
        host = await w.leased_host(group)
        await host.claim(lose=True)
        await cancel(w, group, task)
        assert (await host.claim()).tasks == []
        await w.check()


async def test_a_report_in_flight_comes_before_the_cancel(database: str) -> None:
    async with world(database) as w, held(database) as other:
        group = await w.group()
        task, second = (await w.submit(group, 2)).task_ids
        host = await w.leased_host(group)
        claimed = (await host.claim(1)).tasks
        host.world = w.on(other)
        await host.finish(claimed)
        cancelling = asyncio.create_task(cancel(w, group, task, second))
        await until_blocked(w)
        await other.commit()
        done = await cancelling
        assert outcomes(done) == ["ended", "cancelled"]
        assert done.tasks[0].state is TaskState.SUCCEEDED
        assert await states(w, group) == ["succeeded", "cancelled"]
        assert [task.seq for task in (await list_tasks(w.store, group)).items] == [1, 2]
        await w.check()


async def test_an_order_to_stop_stays_until_the_host_has_answered(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 3)).task_ids
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        await host.renew(started=tasks)
        await cancel(w, group, *ids, grace_seconds=0.5)
        stops = sorted((await host.renew()).stops, key=lambda stop: stop.task_id)
        assert stops == sorted((await host.renew()).stops, key=lambda stop: stop.task_id)
        assert [stop.grace_seconds for stop in stops] == [0.5] * 3
        detail = msgspec.Raw(b'{"stdout": "half a line", "message": "cancelled: enough"}')
        report = stopped(stops[0], signal=15, started_at=1.0, finished_at=2.0, detail=detail)
        assert (await host.report(report)).statuses == [ReportStatus.DUPLICATE]
        assert (await host.finish(tasks[1:2])).statuses == [ReportStatus.SUPERSEDED]
        assert [stop.task_id for stop in (await host.renew(returned=tasks[2:])).stops] == []
        first, second, _ = (await list_tasks(w.store, group)).items
        assert (first.state, first.signal, first.manager_name) == ("cancelled", 15, "host")
        assert first.detail == {"stdout": "half a line", "message": "cancelled: enough"}
        assert (second.state, second.detail) == ("cancelled", None)
        (late,) = (await host.report(msgspec.structs.replace(report, signal=9))).statuses
        assert late is ReportStatus.DUPLICATE
        assert (await list_tasks(w.store, group)).items[0].signal == 15, "the first report counts"
        await w.check()


async def test_a_cancelled_task_of_a_host_that_is_away_stays_cancelled(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 2)).task_ids
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        await host.renew(started=tasks)
        await cancel(w, group, ids[0])
        await w.rows("UPDATE leases SET alive_until = now() - interval '1 s'")
        lost = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
        )
        assert (await release_lease(w.store, lost)).requeued == 1
        assert await states(w, group) == ["cancelled", "ready"]
        assert await w.value("SELECT count(*) FROM task_stops") == 0
        await host.finish(tasks)  # it comes back with what it had in its journal
        assert await states(w, group) == ["cancelled", "succeeded"]
        assert await stranded(w) == 0
        await w.check()


async def test_a_restarted_agent_finds_its_cancelled_task_cancelled(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 2)).task_ids
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        await cancel(w, group, ids[0])
        keys = [AttemptKey(task.task_id, task.attempt) for task in tasks]
        await host.hello(journal=AttemptList.of(keys))
        assert await states(w, group) == ["cancelled", "ready"]
        await host.finish(tasks)
        assert await states(w, group) == ["cancelled", "succeeded"]
        await w.check()


async def test_the_cancel_of_a_group_does_not_count_tasks_that_were_cancelled_before(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 3)).task_ids
        await cancel(w, group, ids[0])
        await w.cancel(group)
        await w.control.discard(group)
        assert (await cancel_stats(w.store, group)).ready_cancelled == 2
        assert (await read_group(w.store, group)).tasks_cancelled == 3


async def test_a_cancelled_task_frees_its_key(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        keyed = TaskSubmission(command=["true"], dedup_key="k")
        (first,) = (await w.submit_tasks(group, [keyed])).task_ids
        await cancel(w, group, first)
        (second,) = (await w.submit_tasks(group, [keyed])).task_ids
        assert first != second
