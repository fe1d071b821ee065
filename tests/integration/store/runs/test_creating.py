"""The tasks of steps: arrays over results, elementwise arrays, windows, and what refuses them."""

import asyncio
from typing import Any

import pytest

from mitosis.chunk_size import ChunkSize
from mitosis.contracts.lifecycle import StepState
from mitosis.jobs.progress import StepProgress
from mitosis.jobs.reading import definition_of
from mitosis.jobs.rendering import Values
from mitosis.store.runs import creating
from mitosis.store.runs.creating import render
from mitosis.store.store import QueueLimits
from tests.support.runs import advance_due, command, job, runs
from tests.support.waiting import wait_until_async


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
        assert "must be a list, not an integer" in str(reasons["over"])
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


@pytest.mark.parametrize("limit", ["per_group", "per_user", "total"])
async def test_a_step_waits_for_room_in_the_queue_and_says_so(database: str, limit: str) -> None:
    async with runs(database) as r:
        limits = QueueLimits(**{limit: 3})
        object.__setattr__(r.w.store, "queue_limits", limits)
        run = await r.start(job({"a": command("a", count=8)}))
        await advance_due(r.w.store)
        view = await r.view(run)
        assert (view.steps[0].created, view.steps[0].state.value) == (3, "running")
        assert "waits for room: up to 3 tasks may be unfinished" in str(view.steps[0].reason)
        await advance_due(r.w.store)
        assert (await r.view(run)).revision == view.revision, "waiting changes nothing"
        for _ in range(8):
            await r.work(most=3)
        view = await r.view(run)
        assert (view.state, view.tasks_succeeded, view.steps[0].reason) == ("success", 8, None)


def test_a_chunk_ends_when_it_has_bytes_enough() -> None:
    definition = definition_of(job({"a": command("a", "x" * 1_000, count=100)}))
    step = StepProgress(id=1, name="a", state=StepState.RUNNING, total=100, created=90)
    tasks, size = render(definition, step, Values(parameters={}), range(10), 2_500)
    assert (len(tasks), 3_000 < size < 4_000) == (3, True)
    tasks, _ = render(definition, step, Values(parameters={}), range(10), 10**9)
    assert len(tasks) == 10


async def test_a_transaction_has_bytes_for_all_its_steps(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.store.runs.creating.CHUNK_BYTES", 2_500)
    steps = {name: command(name, "x" * 1_000, count=4) for name in ("a", "b")}
    async with runs(database) as r:
        run = await r.start(job(steps))
        rows = await r.w.rows("SELECT cardinality(task_ids) AS n FROM step_tasks")
        assert sorted(row["n"] for row in rows) == [1, 2, 2, 3]
        assert (await r.view(run)).tasks_created == 8


async def test_a_step_whose_results_are_gone_fails_with_the_reason(database: str) -> None:
    steps = {
        "list": command("list", count=2),
        "wait": command("wait", after="list"),
        "use": command("use", "{{ results.list }}", after="wait"),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        await r.work(lambda words, attempt: 7)
        await r.w.rows(
            "DELETE FROM task_result WHERE task_id = (SELECT min(task_id) FROM task_result"
            " WHERE detail ->> 'result' = '7')"
        )
        await r.finish()
        view = await r.view(run)
        assert (view.steps[2].state, view.state) == ("failed", "failed")
        assert "results of list are gone" in str(view.steps[2].reason)


async def test_the_groups_of_a_transaction_are_locked_by_number(database: str) -> None:
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )
    steps = {
        "first": command("first"),
        "a": command("a", group="two", after="first"),
        "b": command("b", after="first"),
    }
    async with runs(database, "one", "two") as r:
        await r.start(job(steps))
        host = r.hosts["one"]
        await r.end(host, (await host.claim()).tasks, lambda words, attempt: None)
        one, two = [
            row["id"] for row in await r.w.rows("SELECT g.id FROM task_groups AS g ORDER BY g.id")
        ]
        lock = "SELECT group_id FROM group_live WHERE group_id = %s FOR UPDATE"
        async with r.w.store.database.transaction() as other:
            await other.execute(lock, (one,))
            turn = asyncio.create_task(advance_due(r.w.store))
            await wait_until_async(lambda: r.w.value(waiting))
            await r.w.rows(lock + " NOWAIT", two)  # not locked: a turn waits for the first one only
        await turn
        assert await r.w.value("SELECT count(*) FROM open_task") == 2


async def test_a_step_ends_with_the_one_it_follows_before_all_its_tasks_were_created(
    database: str,
) -> None:
    steps = {
        "a": command("a", count=6, max_failures=0),
        "b": command("b", after={"a": "each"}),
        "c": command("c", after={"b": "always"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps, max_concurrent_tasks=2))
        await r.finish(lambda words, attempt: words[0] != "a")
        a, b, c = (await r.view(run)).steps
        assert (a.state, a.created, b.state, b.created) == ("failed", 2, "failed", 2)
        assert b.reason == "a has ended before all its tasks were created"
        assert (c.state, (await r.view(run)).state) == ("succeeded", "failed")


async def test_a_transaction_creates_as_many_tasks_as_the_ones_before_had_time_for(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[float] = []
    monkeypatch.setattr(creating, "SECONDS", 60.0)  # no transaction is long
    monkeypatch.setattr(ChunkSize, "took", lambda _, seconds: took.append(seconds))
    async with runs(database) as r:
        r.w.store.step_chunks.rows = 150
        await r.start(job({"a": command("a", count=3)}))
        assert took == [], "three tasks were fast, which says nothing"
        await r.start(job({"b": command("b", count=600)}))
        starts = await r.w.rows(
            "SELECT p.start FROM step_tasks AS p JOIN run_steps AS s ON s.id = p.step_id"
            " WHERE s.name = 'b' ORDER BY p.start"
        )
        assert [row["start"] for row in starts][:2] == [0, 150]
        assert took != []
