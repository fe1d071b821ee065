"""The life of a task group in PostgreSQL: verbs, clocks, discard, settlement (protocol P8)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mitosis.chunk_size import ChunkSize
from mitosis.contracts.control import Cancel, Close, Complete, ReleaseReason, ReleaseRequest, Reopen
from mitosis.contracts.errors import InvalidTransition, NotFound
from mitosis.contracts.lifecycle import TASK_GROUP, TaskGroupEvent, TaskGroupState
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.tasks.views import list_tasks
from tests.support.campaigns import Host, World, failed, hook, succeeded, world

VERBS: dict[TaskGroupEvent, Close | Reopen | Cancel | Complete] = {
    TaskGroupEvent.CLOSE: Close(),
    TaskGroupEvent.REOPEN: Reopen(),
    TaskGroupEvent.CANCEL: Cancel(),
    TaskGroupEvent.COMPLETE: Complete(),
}
S = TaskGroupState
FIRST_CHUNK = ChunkSize().rows
ALREADY_THERE = {
    (S.CLOSED, TaskGroupEvent.CLOSE),
    (S.COMPLETE, TaskGroupEvent.CLOSE),
    (S.OPEN, TaskGroupEvent.REOPEN),
    (S.COMPLETE, TaskGroupEvent.COMPLETE),
    (S.CANCELLED, TaskGroupEvent.CANCEL),
}
THROUGH_CLOSED = {(S.OPEN, TaskGroupEvent.COMPLETE)}


async def bring_to(w: World, group: UUID, state: TaskGroupState) -> None:
    if state is S.CANCELLED:
        await w.cancel(group)
    elif state is not S.OPEN:
        await w.close(group)
        if state is S.COMPLETE:
            await w.control.finalize(group)


async def release(w: World, host: Host) -> None:
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.GROUP_ENDED
    )
    await release_lease(w.store, request)


@pytest.mark.parametrize("state", list(TaskGroupState))
@pytest.mark.parametrize("event", list(TaskGroupEvent))
@pytest.mark.spec("S002-103", "S000-144")
async def test_the_table_decides_every_verb(
    database: str, state: TaskGroupState, event: TaskGroupEvent
) -> None:
    async with world(database) as w:
        group = await w.group()
        await bring_to(w, group, state)
        if (state, event) in ALREADY_THERE:
            assert (await w.apply(group, VERBS[event])).state == state
        elif (state, event) in THROUGH_CLOSED:
            assert (await w.apply(group, VERBS[event])).state == S.COMPLETE
        elif (state, event) in TASK_GROUP.table:
            assert (await w.apply(group, VERBS[event])).state == TASK_GROUP.after(state, event)
        else:
            with pytest.raises(InvalidTransition):
                await w.apply(group, VERBS[event])
            assert (await w.control.observe_task_group(group)).state == state


async def test_a_group_that_does_not_exist(database: str) -> None:
    async with world(database) as w:
        nobody = w.user_id
        assert not (await w.control.observe_task_group(nobody)).exists
        assert not (await w.control.finalize(nobody)).exists
        assert not (await w.control.settle(nobody)).exists
        assert not (await w.control.close_if_inactive(nobody)).exists
        assert (await w.control.discard(nobody)).remaining is False
        for verb in VERBS.values():
            with pytest.raises(NotFound):
                await w.apply(nobody, verb)
        with pytest.raises(NotFound):
            await read_group(w.store, nobody)


@pytest.mark.spec("S002-122", "S002-104")
async def test_the_drain_edge_is_seen_by_whoever_makes_it(database: str) -> None:
    """By the last report of a closed group, and by the close of a group with nothing unfinished."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        one, two = (await host.claim()).tasks
        await host.report(succeeded(one))
        await w.close(group)
        await w.pokes()
        assert (await w.control.finalize(group)).state == "closed"
        await host.report(succeeded(two))
        assert ("task_group", group) in await w.pokes()
        assert (await w.control.observe_task_group(group)).drain_seq == 1
        await w.reopen(group)
        await w.close(group)
        assert (await w.control.observe_task_group(group)).drain_seq == 2
        assert ("task_group", group) in await w.pokes()
        assert (await w.control.finalize(group)).state == "complete"
        assert await w.pokes() == {("manager", host.manager_id)}, "its own workflow looks again"


async def test_an_open_group_drains_without_an_edge(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await w.pokes()
        await host.finish((await host.claim()).tasks)
        assert await w.pokes() == set()
        assert (await w.control.observe_task_group(group)).drain_seq == 0


async def test_a_group_with_blocked_tasks_of_a_later_version_ends(database: str) -> None:
    """They are claimed by nobody, and cancelled with the rest by every version that runs beside it."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3)
        host = await w.leased_host(group)
        await w.rows("UPDATE open_task SET state = 2 WHERE id <> (SELECT min(id) FROM open_task)")
        claimed = (await host.claim()).tasks
        assert len(claimed) == 1
        await w.cancel(group)
        assert (await w.control.observe_task_group(group)).discardable
        done = await w.control.discard(group)
        assert (done.cancelled, done.remaining) == (2, False)
        await host.finish(claimed)
        await w.check()
        await release(w, host)
        await host.clean(group)
        assert (await w.control.settle(group)).settled


@pytest.mark.spec("S002-31", "S002-119", "S002-131")
async def test_auto_close_counts_from_the_last_submission(database: str) -> None:
    async with world(database) as w:
        group = await w.group(auto_close_timeout=timedelta(seconds=60))
        view = await w.control.close_if_inactive(group)
        assert view.state == "open"
        assert 50 < (view.auto_close_in_seconds or 0) <= 60
        await w.rows("UPDATE group_live SET opened_at = now() - interval '61 seconds'")
        await w.submit(group, 1)
        assert (await w.control.close_if_inactive(group)).state == "open", "a submission moved it"
        await w.rows("UPDATE group_live SET last_task_submitted_at = opened_at")
        assert ((await w.control.observe_task_group(group)).auto_close_in_seconds or 0) < 0
        await w.pokes()
        assert (await w.control.close_if_inactive(group)).state == "closed"
        assert ("task_group", group) in await w.pokes()
        await w.reopen(group)
        assert (await w.control.close_if_inactive(group)).state == "open", (
            "reopening starts it anew"
        )


async def test_a_close_deadline_and_no_clock_at_all(database: str) -> None:
    async with world(database) as w:
        never = await w.group("never")
        view = await w.control.close_if_inactive(never)
        assert (view.state, view.auto_close_in_seconds) == ("open", None)
        assert view.close_deadline_in_seconds is None
        soon = await w.group("soon", close_deadline=datetime.now(UTC) + timedelta(hours=1))
        assert (await w.control.close_if_inactive(soon)).state == "open"
        past = await w.group("past", close_deadline=datetime.now(UTC) - timedelta(hours=1))
        assert (await w.control.close_if_inactive(past)).state == "complete", (
            "nothing was unfinished"
        )


@pytest.mark.spec("S002-105", "C-08")
@pytest.mark.parametrize("state", [S.OPEN, S.CLOSED])
async def test_what_is_unfinished_at_the_close_deadline_is_cancelled_with_grace(
    database: str, state: TaskGroupState
) -> None:
    async with world(database) as w:
        hour = timedelta(hours=1)
        group = await w.group(close_deadline=datetime.now(UTC) + hour, cancel_grace_seconds=7)
        await w.submit(group, 3)
        host = await w.leased_host(group)
        (one,) = (await host.claim(1)).tasks
        await bring_to(w, group, state)
        view = await w.control.close_if_inactive(group)
        assert (view.state, view.discarding) == (state, False)
        assert 3500 < (view.close_deadline_in_seconds or 0) <= 3600
        await w.rows("UPDATE task_groups SET close_deadline = now()")
        await w.pokes()
        view = await w.control.close_if_inactive(group)
        assert (view.state, view.discardable) == ("closed", True)
        assert view.close_deadline_in_seconds is None, "over, and not to be waited for again"
        assert {("task_group", group), ("manager", host.manager_id)} <= await w.pokes()
        order = (await host.renew()).order
        assert order is not None
        assert (order.kill, order.grace_seconds) == (True, 7)
        assert order.reason == "its close deadline has passed"
        await w.control.discard(group)
        await host.report(failed(one, "cancelled"))
        assert (await w.control.finalize(group)).state == "complete"


@pytest.mark.spec("S000-136", "S000-39")
async def test_cancel_ends_leases_and_discards_what_nobody_has_claimed(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 5)
        host = await w.leased_host(group)
        one, two = (await host.claim(2)).tasks
        await w.pokes()
        view = await w.cancel(group, reason="enough", grace_seconds=1)
        assert (view.state, view.discarding, view.discardable, view.unfinished) == (
            "cancelled",
            True,
            True,
            5,
        )
        assert {("task_group", group), ("manager", host.manager_id)} <= await w.pokes()
        info = await read_group(w.store, group)
        assert (info.counting, info.reason) == (True, "enough")
        answer = await w.control.discard(group)
        assert (answer.cancelled, answer.remaining) == (3, False)
        await host.report(succeeded(one), failed(two, "cancelled"))
        view = await w.control.observe_task_group(group)
        assert (view.succeeded, view.failed, view.cancelled) == (1, 1, 3)
        assert ("task_group", group) in await w.pokes(), "the last one is gone"
        states = {
            item.task_id: item.state.value for item in (await list_tasks(w.store, group)).items
        }
        assert list(states.values()) == [
            "succeeded",
            "failed",
            "cancelled",
            "cancelled",
            "cancelled",
        ]
        await w.check()


@pytest.mark.spec("S000-25")
async def test_cancel_leaves_alone_what_has_ended(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 4)
        host = await w.leased_host(group)
        one, two, three = (await host.claim(3)).tasks
        await host.report(succeeded(one), failed(two, exit_code=3), failed(three, exit_code=4))
        ended = await w.rows("SELECT * FROM task_result ORDER BY seq")
        await w.cancel(group)
        await w.control.discard(group)
        after = await w.rows("SELECT * FROM task_result ORDER BY seq")
        assert (after[:3], [row["state"] for row in after[3:]]) == (ended, ["cancelled"])
        await w.check()


async def test_cancel_may_let_running_tasks_finish_and_a_second_one_may_not(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.claim()
        await w.cancel(group, cancel_running_tasks=False)
        order = (await host.renew()).order
        assert order is not None
        assert not order.kill
        await w.cancel(group, grace_seconds=2)
        order = (await host.renew()).order
        assert order is not None
        assert (order.kill, order.grace_seconds) == (True, 2)


async def test_discard_goes_by_chunks_and_can_be_repeated(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2 * FIRST_CHUNK)
        await w.rows("UPDATE open_task SET id = id + 1000000")
        control = w.control
        assert (await w.control.discard(group)).cancelled == 0, "not discarding"
        await w.cancel(group)
        first = await control.discard(group)
        assert (first.cancelled, first.remaining) == (FIRST_CHUNK, True)
        await w.pokes()
        await w.rows(  # as if requeued since, where the first chunk has been
            "UPDATE open_task SET id = 1 WHERE id = (SELECT max(id) FROM open_task)"
        )
        second = await control.discard(group)
        assert second.remaining
        while (third := await control.discard(group)).remaining:
            pass
        assert third.cancelled > 0
        assert ("task_group", group) in await w.pokes()
        assert (await w.control.discard(group)).cancelled == 0
        await w.check()


@pytest.mark.spec("S002-105")
async def test_complete_by_force_cancels_what_is_unfinished(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3)
        host = await w.leased_host(group)
        (one,) = (await host.claim(1)).tasks
        assert (await w.complete(group)).state == "closed", "completes when the last one ends"
        view = await w.complete(group, force=True, grace_seconds=4)
        assert (view.state, view.discardable) == ("closed", True)
        with pytest.raises(InvalidTransition):
            await w.reopen(group)
        order = (await host.renew()).order
        assert order is not None
        assert (order.kill, order.grace_seconds) == (True, 4)
        await w.control.discard(group)
        await host.report(failed(one, "cancelled"))
        await w.control.finalize(group)
        await release(w, host)
        await host.clean(group)
        view = await w.control.settle(group)
        assert (view.state, view.settled, view.result) == ("complete", True, "tasks_failed")


@pytest.mark.parametrize(
    "missing", ["terminal", "unfinished", "offer", "lease", "environment", "none"]
)
async def test_a_group_settles_only_when_nothing_is_left(database: str, missing: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        if missing != "unfinished":
            await host.finish(tasks)
        if missing == "unfinished":
            await w.cancel(group)
        elif missing != "terminal":
            await w.close(group)
            await w.control.finalize(group)
        if missing not in ("lease", "terminal"):
            await release(w, host)
        if missing == "unfinished":
            await w.rows("UPDATE open_task SET state = 0, epoch = NULL, claim_seq = NULL")
        if missing == "offer":
            await w.rows(
                "INSERT INTO leases (group_id, manager_id) SELECT g.id, m.id FROM task_groups g, managers m"
            )
        if missing not in ("environment", "terminal"):
            await host.clean(group)
        view = await w.control.settle(group)
        assert view.settled is (missing == "none")
        assert view.settleable is False


async def test_settlement_does_not_wait_for_a_host_that_is_lost(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await w.close(group)
        await w.control.finalize(group)
        await w.pokes()
        await w.rows("UPDATE leases SET alive_until = now()")
        request = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
        )
        await release_lease(w.store, request)
        assert ("task_group", group) in await w.pokes()
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, "teardown_degraded")
        assert (await host.hello()).owed == (group,)
        await host.clean(group)


@pytest.mark.spec("S002-124", "S002-145")
@pytest.mark.parametrize(
    ("how", "result"),
    [
        ("success", "success"),
        ("failed", "tasks_failed"),
        ("degraded", "teardown_degraded"),
        ("failed and degraded", "tasks_failed"),
        ("cancelled", "cancelled"),
    ],
)
async def test_the_result_is_the_first_rule_that_holds(
    database: str, how: str, result: str
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        (task,) = (await host.claim()).tasks
        await host.report(failed(task, exit_code=1) if "failed" in how else succeeded(task))
        if how == "cancelled":
            await w.cancel(group)
        else:
            await w.close(group)
            await w.control.finalize(group)
        await release(w, host)
        await host.clean(group, degraded="degraded" in how)
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, result)
        assert view.settled_after_seconds is not None
        assert (await w.control.settle(group)).result == result, "again is success"


async def test_setup_failed_is_the_result_of_tasks_that_never_ran(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)
        await host.environment(group, "preparing", epoch=host.epoch)
        bad = hook("failed", exit_code=1)
        await host.environment(group, "setup_failed", epoch=host.epoch, hook=bad)
        await host.environment(group, "cleaned")
        await release(w, host)
        await w.complete(group, force=True)
        await w.control.discard(group)
        await w.control.finalize(group)
        assert (await w.control.settle(group)).result == "setup_failed"


async def test_the_end_of_the_last_lease_wakes_a_cancelled_group_which_settles(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)
        await w.cancel(group, cancel_running_tasks=True)
        await w.discard_all(group)
        assert not (await w.control.settle(group)).settled
        await w.pokes()
        await release(w, host)
        assert ("task_group", group) in await w.pokes()
        assert (await w.control.settle(group)).settled
