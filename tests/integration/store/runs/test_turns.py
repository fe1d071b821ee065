"""Runs take turns; one that fails waits alone, and ends if it cannot be carried on."""

from typing import Any

import pytest

from mitosis.contracts.errors import DatabaseUnavailable, UpgradeInProgress
from mitosis.contracts.runs import CancelRun
from mitosis.store.runs import turns
from mitosis.store.runs.advance import carry_on, may_pass
from mitosis.store.runs.stopping import cancel_run
from mitosis.store.runs.turns import Turns, take_turn
from tests.support.runs import Runs, advance_due, command, job, runs


async def number_of(r: Runs, run: Any) -> int:
    return int(await r.w.value("SELECT id FROM runs WHERE uuid = %s", run))


async def test_a_large_run_does_not_hold_up_a_small_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.store.runs.creating.CHUNK", 2)
    async with runs(database) as r:
        large = await r.start(job({"a": command("large", count=20)}), carry_on=False)
        small = await r.start(job({"a": command("a", count=4)}), carry_on=False)
        these = Turns(r.w.store)
        await these.add_due()
        await these.take()
        await these.take()
        assert [(await r.view(run)).tasks_created for run in (large, small)] == [4, 4]
        await these.take_all()
        assert [(await r.view(run)).tasks_created for run in (large, small)] == [20, 4]


async def test_a_run_that_fails_waits_alone_and_ends_when_it_cannot_be_carried_on(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(database) as r:
        broken = await r.start(job({"a": command("a", count=2), "b": command("b", after="a")}))
        good = await r.start(job({"a": command("good")}))
        number = await number_of(r, broken)

        async def fail_for_one(connection: Any, store: Any, loaded: Any, **more: Any) -> bool:
            if loaded.run.id == number:
                raise KeyError("its definition cannot be read")
            return await carry_on(connection, store, loaded, **more)

        monkeypatch.setattr(turns, "carry_on", fail_for_one)
        host = r.hosts["one"]
        claimed = (await host.claim(1)).tasks
        await r.end(host, claimed, lambda words, attempt: None)
        await r.end(host, (await host.claim(2)).tasks[1:], lambda words, attempt: None)
        these = Turns(r.w.store)
        await these.add_due()
        await these.take_all()
        assert (await r.view(good)).state == "success"
        assert these.pause()
        these.add([number])
        assert these.pause(), "an end of a task does not shorten its pause"
        for _ in range(turns.MOST_FAILURES):
            these._failures[number].again_at = 0.0
            await these.take()
        view = await r.view(broken)
        assert (view.state, view.stopped_by) == ("failed", "error")
        assert "its definition cannot be read" in str(view.reason)
        assert [step.state.value for step in view.steps] == ["failed", "cancelled"]
        assert (view.tasks_open, view.tasks_succeeded, view.tasks_cancelled) == (0, 1, 1)
        assert await r.w.value("SELECT count(*) FROM step_ends") == 0


async def test_another_process_goes_on_between_two_chunks(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.store.runs.creating.CHUNK", 4)
    async with runs(database) as r:
        steps = {"a": command("a", count=10), "b": command("b", after={"a": "each"})}
        run = await r.start(job(steps), carry_on=False)
        assert (await r.view(run)).tasks_created == 4
        await take_turn(r.w.store, await number_of(r, run))
        await advance_due(r.w.store)  # the process of these two turns has died
        assert (await r.view(run)).tasks_created == 20
        await r.finish()
        for step in ("a", "b"):
            assert [one.index for one in await r.tasks(run, step)] == list(range(10))
        assert ((await r.view(run)).state, len(r.started)) == ("success", 20)


async def test_a_busy_run_rests_between_turns_that_only_count(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "BUSY_TASKS", 5)
    monkeypatch.setattr(turns, "REST_SECONDS", 60.0)
    async with runs(database) as r:
        run = await r.start(job({"a": command("a", count=20)}))
        number = await number_of(r, run)
        these = Turns(r.w.store)
        host = r.hosts["one"]
        await r.end(host, (await host.claim(2)).tasks, lambda words, attempt: None)
        these.add([number])
        await these.take()
        assert (await r.view(run)).tasks_succeeded == 2
        these.add([number])
        assert 0 < (these.pause() or 0) <= 60
        await these.take()
        these._resting[number] = 0.0
        assert these.pause() == 0.0
        await r.end(host, (await host.claim(13)).tasks, lambda words, attempt: None)
        await these.take()
        assert (await r.view(run)).tasks_succeeded == 15
        assert these.pause() == 0.0, "five are left: it looks again at once"
        await cancel_run(r.w.store, run, CancelRun())
        assert (await r.view(run)).state == "cancelled"


async def test_an_end_that_comes_while_the_run_is_locked_is_not_left(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a")}))
        host = r.hosts["one"]
        claimed = (await host.claim()).tasks

        async def end_meanwhile(*given: Any, **more: Any) -> bool:
            await r.end(host, claimed, lambda words, attempt: None)
            assert not (await take_turn(r.w.store, await number_of(r, run))).again, "it is locked"
            return await carry_on(*given, **more)

        with monkeypatch.context() as patched:
            patched.setattr(turns, "carry_on", end_meanwhile)
            turn = await take_turn(r.w.store, await number_of(r, run))
        assert turn.again, "it looks again"


def test_what_is_away_or_upgraded_ends_no_run() -> None:
    assert may_pass(DatabaseUnavailable())
    assert may_pass(UpgradeInProgress())
    assert not may_pass(KeyError("a"))
