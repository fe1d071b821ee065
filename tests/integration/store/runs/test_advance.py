"""A run is carried on from step to step: order, conditions, arrays, results, limits."""

import asyncio
from typing import Any

import pytest

from mitosis.store.runs.advance import carry_on
from mitosis.store.runs.rows import lock_run
from mitosis.store.runs.turns import advance_run
from tests.support.runs import advance_due, command, job, runs

PIPELINE = job(
    {
        "prepare": command("prepare"),
        "measure": command("measure", "{{ task.index }}", after="prepare", count=3),
        "merge": command("merge", "{{ results.measure }}", after="measure"),
        "publish": command("publish", after="merge", when="results.merge.rows > 3"),
        "clean": command("clean", after={"measure": "always", "publish": "always"}),
    }
)


@pytest.mark.spec("S001-02", "S001-03", "S001-52")
async def test_a_pipeline_runs_step_by_step(database: str) -> None:
    def judge(words: list[str], attempt: int) -> Any:
        if words[0] == "measure":
            return int(words[1]) * 10
        return {"rows": len(words) - 1} if words[0] == "merge" else None

    async with runs(database) as r:
        run = await r.start(PIPELINE)
        assert (await r.view(run)).state == "running"
        await r.finish(judge)
        view = await r.view(run)
        assert view.state == "success"
        assert await r.states(run) == {
            "prepare": "succeeded",
            "measure": "succeeded",
            "merge": "succeeded",
            "publish": "skipped",
            "clean": "succeeded",
        }
        assert r.started == ["prepare", *["measure"] * 3, "merge", "clean"]
        tasks = await r.tasks(run, "measure")
        assert [(one.index, one.result) for one in tasks] == [(0, 0), (1, 10), (2, 20)]
        assert (view.tasks_created, view.tasks_open, view.tasks_succeeded) == (6, 0, 6)
        await r.w.check()


async def test_what_follows_a_failure_runs_and_what_needs_success_is_skipped(database: str) -> None:
    steps = {
        "work": command("work", count=3),
        "next": command("next", after="work"),
        "alarm": command("alarm", after={"work": "failure"}),
        "quiet": command("quiet", after={"alarm": "failure"}),
        "clean": command("clean", after={"next": "always", "alarm": "always"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        await r.finish(lambda words, attempt: words[0] != "work")
        view = await r.view(run)
        assert view.state == "failed"
        assert await r.states(run) == {
            "work": "failed",
            "next": "skipped",
            "alarm": "succeeded",
            "quiet": "skipped",
            "clean": "succeeded",
        }
        work = next(step for step in view.steps if step.name == "work")
        assert (work.created, work.failed, work.open) == (3, 3, 0)


@pytest.mark.spec("S001-44")
async def test_a_retried_task_is_counted_once(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a", count=2, retry={"max_attempts": 2})}))
        await r.finish(lambda words, attempt: attempt > 1)
        view = await r.view(run)
        assert (view.state, view.tasks_succeeded, view.tasks_failed) == ("success", 2, 0)
        assert len(r.started) == 4


@pytest.mark.parametrize(("limit", "failures"), [(1, 2), ("40%", 3)], ids=str)
async def test_too_many_failures_cancel_the_rest_of_the_step(
    database: str, limit: int | str, failures: int
) -> None:
    steps = {
        "a": command("a", count=6, max_failures=limit),
        "b": command("b", after={"a": "failure"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        while (await r.view(run)).steps[0].state == "running":
            assert await r.work(lambda words, attempt: False, most=1)
        step = (await r.view(run)).steps[0]
        assert (step.state, step.failed, step.cancelled) == ("failed", failures, 6 - failures)
        assert (step.stopped_by, "max_failures" in str(step.reason)) == ("failures", True)
        await r.finish()
        assert r.started[-1] == "b"


async def test_too_many_failures_end_the_run(database: str) -> None:
    steps = {
        "a": command("a", count=4),
        "b": command("b", count=4),
        "c": command("c", after={"a": "failure"}),
        "clean": command("clean", after={"a": "always", "b": "always"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps, max_failures=0))
        await r.work(lambda words, attempt: False, most=1)
        await r.finish()
        view = await r.view(run)
        assert (view.state, view.stopped_by) == ("failed", "failures")
        assert await r.states(run) == {
            "a": "cancelled",
            "b": "cancelled",
            "c": "cancelled",
            "clean": "succeeded",
        }
        assert r.started[1:] == ["clean"]


@pytest.mark.spec("S001-45")
@pytest.mark.parametrize("which", ["run", "step"])
async def test_a_timeout_cancels_the_rest(database: str, which: str) -> None:
    limits = {"timeout": "1h"}
    steps = {
        "a": command("a", **(limits if which == "step" else {})),
        "b": command("b", after={"a": "failure"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps, **(limits if which == "run" else {})))
        (task,) = (await r.hosts["one"].claim()).tasks
        await advance_due(r.w.store)
        assert await r.states(run) == {"a": "running", "b": "waiting"}
        table = "runs" if which == "run" else "run_steps"
        await r.w.rows(f"UPDATE {table} SET deadline = now() WHERE deadline > now()")  # noqa: S608
        await advance_due(r.w.store)
        view = await r.view(run)
        first = view.steps[0]
        if which == "run":
            assert (view.state, view.stopped_by) == ("failed", "timeout")
            assert await r.states(run) == {"a": "cancelled", "b": "cancelled"}
        else:
            assert (first.state, first.stopped_by) == ("failed", "timeout")
            assert (view.state, view.steps[1].state) == ("running", "running")
        stops = await r.w.rows("SELECT task_id FROM task_stops")
        assert [row["task_id"] for row in stops] == [task.task_id], "its host is told to stop it"


@pytest.mark.spec("S001-48")
async def test_two_processes_may_carry_on_one_run(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(
            job({"a": command("a", count=5), "b": command("b", after="a", count=3)})
        )
        number = await r.w.value("SELECT id FROM runs")
        host = r.hosts["one"]
        for task in (await host.claim()).tasks:
            advances = [advance_run(r.w.store, number) for _ in range(3)]
            await asyncio.gather(r.end(host, [task], lambda words, attempt: None), *advances)
        await r.finish()
        view = await r.view(run)
        assert (view.state, view.tasks_created, view.tasks_succeeded) == ("success", 8, 8)


async def test_who_finds_a_run_held_leaves_it_to_the_holder(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a"), "b": command("b", after="a")}))
        number = await r.w.value("SELECT id FROM runs")
        host = r.hosts["one"]
        await r.end(host, (await host.claim()).tasks, lambda words, attempt: None)
        async with r.w.database.transaction() as connection:
            loaded = await lock_run(connection, number)
            assert loaded is not None
            await asyncio.wait_for(advance_run(r.w.store, number), 20)
            assert await r.states(run) == {"a": "running", "b": "waiting"}
            await carry_on(connection, r.w.store, loaded)
        assert await r.states(run) == {"a": "succeeded", "b": "running"}
