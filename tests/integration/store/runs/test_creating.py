"""The tasks of steps: arrays over results, elementwise arrays, windows, and what refuses them."""

from dataclasses import replace
from typing import Any

from mitosis.store.runs.advance import advance_due
from mitosis.store.store import QueueLimits
from tests.support.runs import command, job, runs


async def test_an_array_over_the_results_of_a_step(database: str) -> None:
    steps = {
        "list": command("list"),
        "fetch": command("fetch", "{{ item.url }}", after="list", over="results of list"),
        "index": command("index", after={"fetch": "always"}, count="{{ results.list[0].n }}"),
        "none": command("none", after="list", over="results.list[0].none"),
        "after": command("after", after="none"),
    }

    def judge(words: list[str], attempt: int) -> Any:
        return [{"url": "u0", "n": 2, "none": []}, {"url": "u1"}] if words[0] == "list" else words

    async with runs(database) as r:
        run = await r.start(job(steps))
        await r.finish(judge)
        assert set((await r.states(run)).values()) == {"succeeded"}
        assert [one.result for one in await r.tasks(run, "fetch")] == [
            ["fetch", "u0"],
            ["fetch", "u1"],
        ]
        assert (len(await r.tasks(run, "index")), len(await r.tasks(run, "none"))) == (2, 0)


async def test_what_cannot_be_created_fails_its_step_with_the_reason(database: str) -> None:
    steps = {
        "list": command("list"),
        "over": command("x", after="list", over="results of list"),
        "text": command("x", "--n={{ results.list }}", after="list"),
        "tell": command("tell", after={"over": "failure", "text": "failure"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        await r.finish(lambda words, attempt: 7 if words[0] == "list" else None)
        assert (await r.view(run)).state == "failed"
        reasons = {step.name: step.reason for step in (await r.view(run)).steps}
        assert "must be a list, not 7" in str(reasons["over"])
        assert await r.states(run) == {
            "list": "succeeded",
            "over": "failed",
            "text": "succeeded",
            "tell": "skipped",
        }


async def test_results_above_the_limit_are_refused_with_what_to_do(database: str) -> None:
    steps = {
        "big": command("big", count=2),
        "use": command("use", after="big", when="results.big[0] == 1"),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        await r.finish(lambda words, attempt: "x" * 600_000)
        use = (await r.view(run)).steps[1]
        assert use.state == "failed"
        assert "put the data into a file" in str(use.reason)


async def test_each_task_follows_the_one_of_its_index(database: str) -> None:
    steps = {
        "resize": command("resize", "{{ item }}", over=["a", "b", "c"]),
        "upload": command("upload", "{{ item }}", after={"resize": "each"}),
        "report": command("report", after={"upload": "failure"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        assert await r.states(run) == {
            "resize": "running",
            "upload": "running",
            "report": "waiting",
        }
        await r.finish(lambda words, attempt: words != ["resize", "b"])
        uploads = await r.tasks(run, "upload")
        assert [one.state.value for one in uploads] == ["succeeded", "cancelled", "succeeded"]
        assert await r.states(run) == {
            "resize": "failed",
            "upload": "failed",
            "report": "succeeded",
        }
        await r.w.check()


async def test_no_more_tasks_are_open_than_the_run_may_have(database: str) -> None:
    steps = {
        "a": command("a", "{{ item }}", over=[1, 2, 3, 4, 5]),
        "b": command("b", after={"a": "each"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps, max_concurrent_tasks=2))
        most = 0
        for _ in range(30):
            most = max(most, (await r.view(run)).tasks_open)
            if not await r.work(most=1):
                break
        assert most == 2
        assert ((await r.view(run)).state, len(r.started)) == ("success", 10)


async def test_a_full_queue_is_tried_again(database: str) -> None:
    async with runs(database) as r:
        w = r.w
        full = replace(w.store, queue_limits=QueueLimits(per_group=3))
        run = await r.start(
            job({"a": command("a", count=3), "b": command("b", after={"a": "each"})})
        )
        await w.rows("UPDATE runs SET due = true")
        assert await r.states(run) == {"a": "running", "b": "running"}
        second = await r.start(job({"c": command("c", count=2)}), store=full)
        assert (await r.view(second)).tasks_created == 0
        await advance_due(full)
        assert (await r.view(second)).steps[0].state == "running"
        await r.finish()
        await advance_due(full)
        await r.finish()
        assert (await r.view(second)).state == "success"
