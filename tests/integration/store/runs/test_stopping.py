"""Cancelling and deleting runs."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from mitosis.contracts.control import Cancel
from mitosis.contracts.errors import Conflict, InvalidTransition, NotFound
from mitosis.contracts.retention import RetentionTerms
from mitosis.contracts.runs import CancelRun, RerunRun
from mitosis.store.groups.deletion import delete_group
from mitosis.store.retention.deletion import ExpiredRows
from mitosis.store.runs import stopping
from mitosis.store.runs.starting import rerun
from mitosis.store.runs.stopping import cancel_run, delete_run
from tests.support.aging import time_passes
from tests.support.runs import command, job, runs


@pytest.mark.spec("S001-05", "S001-51")
async def test_cancel_ends_what_runs_and_lets_clean_up(database: str) -> None:
    steps = {
        "a": command("a", count=3),
        "b": command("b", after="a"),
        "clean": command("clean", after={"a": "always", "b": "always"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        await r.work(most=1)
        (task,) = (await r.hosts["one"].claim(1)).tasks
        await cancel_run(r.w.store, run, CancelRun(reason="enough", grace_seconds=3))
        view = await r.view(run)
        assert (view.state, view.stopped_by, view.reason) == ("running", "cancel", "enough")
        (stop,) = await r.w.rows("SELECT task_id, grace_seconds FROM task_stops")
        assert (stop["task_id"], stop["grace_seconds"]) == (task.task_id, 3)
        await r.finish()
        assert (await r.view(run)).state == "cancelled"
        assert await r.states(run) == {"a": "cancelled", "b": "cancelled", "clean": "succeeded"}
        assert r.started == ["a", "clean"]
        await r.w.check()


async def test_cancel_can_skip_the_steps_that_clean_up(database: str) -> None:
    steps = {"a": command("a"), "clean": command("clean", after={"a": "always"})}
    async with runs(database) as r:
        run = await r.start(job(steps))
        await cancel_run(r.w.store, run, CancelRun())
        assert await r.states(run) == {"a": "cancelled", "clean": "running"}
        await cancel_run(r.w.store, run, CancelRun(skip_cleanup=True))
        view = await r.view(run)
        assert view.state == "cancelled"
        assert await r.states(run) == {"a": "cancelled", "clean": "cancelled"}
        assert view.tasks_open == 0


async def test_an_ended_run_is_not_cancelled(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a")}))
        with pytest.raises(Conflict, match="the run is running"):
            await delete_run(r.w.store, run)
        await r.finish()
        with pytest.raises(InvalidTransition):
            await cancel_run(r.w.store, run, CancelRun())
        assert (await r.view(run)).state == "success"


async def test_a_deleted_run_takes_its_own_groups_along(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a"), "b": command("b", after="a")}), own=True)
        again = await r.start(job({"a": command("a")}))
        await cancel_run(r.w.store, run, CancelRun())
        await cancel_run(r.w.store, run, CancelRun())  # again changes nothing
        await delete_run(r.w.store, run)
        with pytest.raises(NotFound):
            await r.view(run)
        with pytest.raises(NotFound):
            await delete_run(r.w.store, run)
        (group,) = await r.w.rows(
            "SELECT g.uuid FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id"
            " WHERE g.name LIKE 'run-%%' AND v.delete_when_settled"
        )
        assert (await r.w.control.settle(group["uuid"])).settled
        assert await r.w.value("SELECT count(*) FROM step_tasks AS t") == 1
        await r.finish()
        assert (await r.view(again)).state == "success"


async def test_a_run_whose_results_are_used_stays(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a"), "b": command("b", after="a")}))
        await r.finish(lambda words, attempt: words[0] == "a")
        second = (await rerun(r.w.store, run, r.w.user_id, RerunRun())).run_id
        await r.finish()
        with pytest.raises(Conflict, match=f"run {second} uses results"):
            await delete_run(r.w.store, run)
        await delete_run(r.w.store, second)
        await delete_run(r.w.store, run)
        assert await r.w.value("SELECT count(*) FROM runs") == 0


async def test_a_run_whose_time_has_passed_is_deleted_with_its_groups(database: str) -> None:
    options = RetentionTerms(task_groups=timedelta(hours=1))
    async with runs(database) as r:
        store = replace(r.w.store, retention=options)
        run = await r.start(job({"a": command("a")}), own=True)
        await cancel_run(r.w.store, run, CancelRun())
        group = (await r.view(run)).steps[0].task_group_id
        assert group is not None
        await time_passes(r.w, 1)
        await ExpiredRows(store).delete()
        assert (await r.view(run)).state == "cancelled", "its group is not settled"
        await r.w.control.finalize(group)
        assert (await r.w.control.settle(group)).settled
        await time_passes(r.w, 1)
        await r.w.rows("UPDATE retention SET next_at = now()")
        await ExpiredRows(store).delete()
        assert await r.w.value("SELECT count(*) FROM runs") == 0
        assert await r.w.value("SELECT count(*) FROM task_groups WHERE name LIKE 'run-%%'") == 0


async def test_a_step_without_tasks_any_more_is_run_again(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a"), "b": command("b", after="a")}))
        await r.finish(lambda words, attempt: words[0] == "a")
        await r.w.rows("DELETE FROM task")
        again = (await rerun(r.w.store, run, r.w.user_id, RerunRun())).run_id
        assert await r.states(again) == {"a": "running", "b": "waiting"}


async def test_an_interrupted_deletion_goes_on_and_no_rerun_uses_the_run(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a")}), own=True)
        await cancel_run(r.w.store, run, CancelRun())
        with monkeypatch.context() as killed:
            killed.setattr(stopping, "delete_group", killed_here)
            with pytest.raises(RuntimeError):
                await delete_run(r.w.store, run)
        with pytest.raises(Conflict, match="being deleted"):
            await rerun(r.w.store, run, r.w.user_id, RerunRun())
        await r.w.control.advance_runs()
        with pytest.raises(NotFound):
            await r.view(run)
        await r.w.control.advance_runs()


async def killed_here(*_: object) -> None:
    raise RuntimeError


async def test_a_rerun_and_a_deletion_at_once_do_not_both_succeed(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a"), "b": command("b", after="a")}))
        await r.finish(lambda words, attempt: words[0] == "a")
        both = await asyncio.gather(
            rerun(r.w.store, run, r.w.user_id, RerunRun()),
            delete_run(r.w.store, run),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Conflict | NotFound) for one in both) == 1, both


async def test_a_task_group_that_is_deleted_ends_its_steps(database: str) -> None:
    steps = {"a": command("a", count=3), "b": command("b", after={"a": "failure"})}
    async with runs(database) as r:
        run = await r.start(job(steps), own=True)
        group = (await r.view(run)).steps[0].task_group_id
        assert group is not None
        await delete_group(r.w.store, group, Cancel())
        await r.w.control.discard(group)
        await r.carry_on()
        step = (await r.view(run)).steps[0]
        assert (step.state, step.cancelled, step.open) == ("failed", 3, 0)
        assert (await r.view(run)).state == "failed"
