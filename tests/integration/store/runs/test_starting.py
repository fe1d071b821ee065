"""Starting runs: once per key, in turn, and again with the results of what has succeeded."""

import asyncio
from typing import Any

import pytest

from mitosis.contracts.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    UpgradeInProgress,
)
from mitosis.contracts.lifecycle import StepState
from mitosis.contracts.runs import CancelRun, RerunRun
from mitosis.jobs.reading import definition_of
from mitosis.store.runs import advance, creating
from mitosis.store.runs.starting import NewRun, kept_steps, rerun, start_run
from mitosis.store.runs.stopping import cancel_run, delete_run
from mitosis.store.users.accounts import create_user
from tests.support.runs import Runs, command, job, runs


def new(r: Runs, definition: dict[str, Any], **fields: Any) -> NewRun:
    given = {"user_id": r.w.user_id, "group_name": "alice", "parameters": {}, **fields}
    return NewRun(definition=definition_of(definition), **given)


@pytest.mark.spec("S001-07")
async def test_one_key_starts_one_run(database: str) -> None:
    async with runs(database) as r:
        definition = r.standing(job({"a": command("a")}))
        one = new(r, definition, idempotency_key="k", asked={"job": "j"})
        started = await asyncio.gather(*(start_run(r.w.store, one) for _ in range(4)))
        assert len({one.run_id for one in started}) == 1
        assert sorted(one.replayed for one in started) == [False, True, True, True]
        other = new(r, definition, idempotency_key="k", asked={"job": "other"})
        with pytest.raises(IdempotencyKeyReused):
            await start_run(r.w.store, other)
        next_version = r.standing(job({"b": command("b")}, parameters={"needed": {}}))
        later = new(r, next_version, idempotency_key="k", asked={"job": "j"})
        assert (await start_run(r.w.store, later)).run_id == started[0].run_id
        assert await r.w.value("SELECT count(*) FROM open_task") == 1


async def test_what_cannot_start_leaves_nothing_behind(database: str) -> None:
    async with runs(database) as r:
        bob = await create_user(r.w.store, "bob")
        absent = job({"a": command("a")}, groups={"main": {"standing": "absent"}})
        alices = job({"a": command("a")}, groups={"main": {"standing": "alice/one"}})
        services = job(
            {"a": {"named_task": "n/t@1"}},
            groups={"main": {"standing": "one"}},
        )
        given = {"user_id": bob.user_id, "group_name": "bob"}
        for one, error in (
            (new(r, absent), NotFound),
            (new(r, alices, **given), NotFound),
            (new(r, services), InvalidRequest),
            (new(r, job({"a": command("a")}, parameters={"p": {}})), InvalidRequest),
            (new(r, job({"a": command("a")}), group_name="nobody"), NotFound),
        ):
            with pytest.raises(error):
                await start_run(r.w.store, one)
        assert await r.w.value("SELECT count(*) FROM runs") == 0
        assert await r.w.value("SELECT count(*) FROM task_groups WHERE name LIKE 'run-%%'") == 0


@pytest.mark.spec("S001-01")
async def test_runs_of_a_job_take_their_turns(database: str) -> None:
    definition = job({"a": command("a")}, max_concurrent_runs=1)
    async with runs(database) as r:
        first, second, third, fourth = [await r.start(definition) for _ in range(4)]
        other = await r.start({**definition, "name": "other"})

        async def states() -> list[str]:
            return [(await r.view(run)).state.value for run in (first, second, third, fourth)]

        assert await states() == ["running", "pending", "pending", "pending"]
        assert (await r.view(other)).state == "running"
        await cancel_run(r.w.store, second, CancelRun())
        assert await states() == ["running", "cancelled", "pending", "pending"]
        assert await r.states(second) == {"a": "cancelled"}
        await r.work(most=1)
        assert await states() == ["success", "cancelled", "running", "pending"]
        await cancel_run(r.w.store, third, CancelRun())
        assert await states() == ["success", "cancelled", "cancelled", "running"]


async def test_a_pending_run_whose_group_is_gone_has_failed(database: str) -> None:
    definition = job({"a": command("a")}, max_concurrent_runs=1)
    async with runs(database) as r:
        first, second = [await r.start(definition) for _ in range(2)]
        await r.w.rows("UPDATE task_groups SET name = 'renamed'")
        await cancel_run(r.w.store, first, CancelRun())
        view = await r.view(second)
        assert (view.state, view.stopped_by) == ("failed", "error")
        assert "there is no task group one" in str(view.reason)


async def test_a_rerun_takes_over_what_has_succeeded(database: str) -> None:
    steps = {
        "list": command("list"),
        "work": command("work", "{{ item }}", after="list", over="results of list"),
        "merge": command("merge", "{{ results.work }}", "{{ results.list }}", after="work"),
        "clean": command("clean", after={"merge": "always"}),
    }

    def first(words: list[str], attempt: int) -> Any:
        return {"list": [3, 4], "work": words[-1], "merge": False}.get(words[0])

    async with runs(database) as r:
        run = await r.start(job(steps))
        with pytest.raises(Conflict, match="the run is running"):
            await rerun(r.w.store, run, r.w.user_id, RerunRun())
        await r.finish(first)
        assert (await r.view(run)).state == "failed"
        r.started.clear()
        again = (await rerun(r.w.store, run, r.w.user_id, RerunRun())).run_id
        words: list[list[str]] = []
        await r.finish(lambda given, attempt: words.append(given))
        assert words == [["merge", "3", "4", "3", "4"], ["clean"]]
        view = await r.view(again)
        assert (view.state, view.rerun_of) == ("success", run)
        assert [step.taken_from for step in view.steps] == [run, run, None, None]
        assert [one.result for one in await r.tasks(again, "work")] == ["3", "4"]
        third = (await rerun(r.w.store, again, r.w.user_id, RerunRun(all_steps=True))).run_id
        assert await r.states(third) == {
            "list": "running",
            "work": "waiting",
            "merge": "waiting",
            "clean": "waiting",
        }
        last = (await rerun(r.w.store, again, r.w.user_id, RerunRun())).run_id
        view = await r.view(last)
        assert (view.state, view.steps[0].taken_from) == ("success", run), "nothing is left to do"


@pytest.mark.parametrize("window", [{"CHUNK": 4}, {"LEAST": 1, "KEPT_FOR_EACH": 1}])
async def test_a_rerun_repeats_only_the_tasks_of_an_array_that_have_not_succeeded(
    database: str, monkeypatch: pytest.MonkeyPatch, window: dict[str, int]
) -> None:
    for name, number in window.items():
        monkeypatch.setattr(creating, name, number)
    steps = {
        "a": command("a", "{{ task.index }}", count=10),
        "b": command("b", "{{ task.index }}", after={"a": "each"}),
        "c": command("c", "{{ results.b }}", after="b"),
        "d": command("d", count=2, after={"b": "always"}),
    }
    bad = [["a", "3"], ["a", "9"], ["b", "0"]]

    async with runs(database) as r:
        run = await r.start(job(steps, max_concurrent_tasks=2))
        await r.finish(lambda words, attempt: words not in bad and f"{words[-1]} at first")
        first = await r.view(run)
        assert [(one.succeeded, one.failed, one.cancelled) for one in first.steps] == [
            (8, 2, 0),
            (7, 1, 2),
            (0, 0, 0),
            (2, 0, 0),
        ]
        again = (await rerun(r.w.store, run, r.w.user_id, RerunRun())).run_id
        ran: list[list[str]] = []

        def second(words: list[str], attempt: int) -> str:
            ran.append(words[:2])
            return f"{words[-1]} again"

        await r.finish(second)
        assert sorted(ran[:-3]) == [["a", "3"], ["a", "9"], ["b", "0"], ["b", "3"], ["b", "9"]]
        assert sorted(words[0] for words in ran[-3:]) == ["c", "d", "d"]
        view = await r.view(again)
        assert view.state == "success"
        assert [(one.taken, one.taken_from, one.succeeded) for one in view.steps] == [
            (8, run, 10),
            (7, run, 10),
            (0, None, 1),
            (0, None, 2),
        ]
        results = [one.result for one in await r.tasks(again, "b")]
        assert results == [f"{at} {'again' if at in {0, 3, 9} else 'at first'}" for at in range(10)]
        with pytest.raises(Conflict, match="uses results of this one"):
            await delete_run(r.w.store, run)
        third = (await rerun(r.w.store, again, r.w.user_id, RerunRun())).run_id
        with pytest.raises(Conflict, match="uses results of this one"):
            await delete_run(r.w.store, again)
        assert [one.result for one in await r.tasks(third, "b")] == results


async def test_all_tasks_that_run_again_are_cancelled(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a", "{{ task.index }}", count=4)}))
        await r.finish(lambda words, attempt: words[1] == "3")
        again = (await rerun(r.w.store, run, r.w.user_id, RerunRun())).run_id
        await cancel_run(r.w.store, again, CancelRun())
        view = await r.view(again)
        assert view.state == "cancelled"
        (step,) = view.steps
        assert (step.succeeded, step.cancelled, step.taken) == (1, 3, 1)
        third = (await rerun(r.w.store, again, r.w.user_id, RerunRun())).run_id
        await r.finish()
        last = (await rerun(r.w.store, third, r.w.user_id, RerunRun())).run_id
        assert (await r.view(last)).steps[0].taken_from == third, "its rows name the tasks"
        with pytest.raises(Conflict, match="uses results of this one"):
            await delete_run(r.w.store, third)


def test_what_comes_after_a_failed_step_is_run_again() -> None:
    definition = definition_of(
        job(
            {
                "a": command("a"),
                "b": command("b", after="a"),
                "c": command("c", after={"b": "always"}),
                "d": command("d", after={"a": "failure"}),
                "e": command("e", after={"d": "always"}),
            }
        )
    )
    good, bad, skipped = StepState.SUCCEEDED, StepState.FAILED, StepState.SKIPPED
    states = {"a": good, "b": bad, "c": good, "d": skipped, "e": good}
    assert kept_steps(definition, states) == ["a", "d", "e"]
    assert kept_steps(definition, {**states, "a": bad}) == []


async def test_a_large_array_is_created_in_chunks(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.store.runs.creating.CHUNK", 4)
    steps = {
        "a": command("a", "{{ task.index }}", count=10),
        "b": command("b", after={"a": "each"}),
    }
    async with runs(database) as r:
        run = await r.start(job(steps))
        tasks = await r.tasks(run, "a", limit=3)
        assert [one.index for one in tasks] == list(range(10))
        starts = await r.w.rows("SELECT start FROM step_tasks ORDER BY step_id, start")
        assert [row["start"] for row in starts][:3] == [0, 4, 8]
        await r.finish()
        assert (await r.view(run)).tasks_succeeded == 20
        assert len(await r.tasks(run, "b", state="succeeded")) == 10


async def test_a_pending_run_waits_for_the_end_of_an_upgrade(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = job({"a": command("a")}, max_concurrent_runs=1)

    async def refused(*_: object) -> None:
        raise UpgradeInProgress

    async with runs(database) as r:
        first, second = [await r.start(definition) for _ in range(2)]
        with monkeypatch.context() as upgrading:
            upgrading.setattr(advance, "add_groups", refused)
            await r.work(most=1)
            assert (await r.view(first)).state == "success"
            assert (await r.view(second)).state == "pending"
        await r.finish()
        assert (await r.view(second)).state == "success"
