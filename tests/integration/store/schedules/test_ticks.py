"""Starts of runs by schedules: one run for each time, in the name of who may still start it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mitosis.contracts.errors import UpgradeInProgress
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.runs import CancelRun, RunsQuery
from mitosis.contracts.schedules import BackfillSchedule, Interval
from mitosis.jobs.reading import definition_of
from mitosis.store.jobs.jobs import define_job, read_job
from mitosis.store.runs.starting import start_within
from mitosis.store.runs.stopping import cancel_run
from mitosis.store.runs.views import list_runs, read_run
from mitosis.store.schedules import ticks
from mitosis.store.schedules.carrying import due_schedules
from mitosis.store.schedules.figures import schedule_figures
from mitosis.store.schedules.requests import backfill_schedule, trigger_schedule
from mitosis.store.schedules.schedules import (
    change_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
)
from mitosis.store.schedules.ticks import start_scheduled, take_turn
from tests.support.runs import Runs, runs
from tests.support.schedules import AT_ONCE, STEPS, WAITING, Scheduled, made
from tests.support.waiting import wait_until_async

HOUR = timedelta(hours=1)


async def hourly(r: Runs, **fields: Any) -> tuple[Scheduled, datetime]:
    """Return a schedule since yesterday, and its last time."""
    one = Scheduled(r, await made(r, **{"interval": {"every": "1h"}, **fields}))
    now = datetime.now(UTC)
    await one.passes(timedelta(days=1))
    return one, now.replace(minute=0, second=0, microsecond=0)


async def all_runs(r: Runs) -> int:
    return len((await list_runs(r.w.store, r.w.user_id, RunsQuery())).items)


@pytest.mark.spec("S001-47")
async def test_a_time_that_is_started_ten_times_at_once_has_one_run(database: str) -> None:
    async with runs(database) as r:
        schedule, last = await hourly(r, catch_up=1800 + 3600)
        tick = await schedule.tick(last)
        answers = await asyncio.gather(*(start_scheduled(r.w.store, tick) for _ in range(10)))
        found = await schedule.runs()
        assert {one.run_id for one in answers} - {None} <= {run for run, _ in found.values()}
        assert len(found) == 1, "another time within the window was left out by the policy"
        (at,) = found
        run = await read_run(r.w.store, found[at][0])
        assert (run.nominal_time, run.schedule) == (at, "nightly")
        assert run.name == f"nightly {at.isoformat()}"
        late = (await schedule.info()).late_by
        assert late is not None
        assert late >= datetime.now(UTC) - at - timedelta(minutes=1)
        await delete_schedule(r.w.store, schedule.id)
        gone = await start_scheduled(r.w.store, tick)
        assert (gone.run_id, gone.reason) == (None, "the schedule was deleted")
        assert (await read_run(r.w.store, found[at][0])).schedule is None


async def test_a_refused_start_is_shown_and_the_next_one_may_succeed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r))
        new = {"name": "etl", "parameters": {"day": {}}, "steps": STEPS}
        await define_job(r.w.store, r.w.user_id, r.user, definition_of(new))
        first = await trigger_schedule(r.w.store, schedule.id, None)
        assert not await take_turn(r.w.store, schedule.id)
        shown = await schedule.info()
        assert "day" in str(shown.refusal)
        reason = (await schedule.starts())[first.nominal_time].reason
        assert reason == shown.refusal
        new["parameters"] = {}
        await define_job(r.w.store, r.w.user_id, r.user, definition_of(new))

        async def refuse(*_: object) -> None:
            raise UpgradeInProgress("an older process runs")

        await schedule.passes(HOUR)
        second = await trigger_schedule(r.w.store, schedule.id, None)
        with monkeypatch.context() as patch:
            patch.setattr("mitosis.store.schedules.ticks.start_within", refuse)
            await take_turn(r.w.store, schedule.id)
        assert "older process" in str((await schedule.info()).refusal)
        (figures,) = await schedule_figures(r.w.store, r.w.user_id)
        assert (figures.active, figures.refused, figures.waiting) == (1, 1, 1)
        assert await all_runs(r) == 0
        await take_turn(r.w.store, schedule.id)
        assert set(await schedule.runs()) == {second.nominal_time}, "it has waited"
        assert (await schedule.info()).refusal is None
        async with r.w.store.database.connection() as connection:
            await connection.execute("UPDATE users SET state = 'locked' WHERE username = 'alice'")
        await schedule.passes(HOUR)
        third = await trigger_schedule(r.w.store, schedule.id, Overlap.ALLOW_ALL)
        await take_turn(r.w.store, schedule.id)
        reason = (await schedule.starts())[third.nominal_time].reason
        assert "alice, the owner of the schedule" in str(reason)


@pytest.mark.parametrize(
    ("overlap", "cleanup"),
    [(Overlap.CANCEL_OTHER, "running"), (Overlap.TERMINATE_OTHER, "cancelled")],
)
async def test_a_run_that_gives_way_is_cancelled_with_or_without_its_cleanup(
    database: str, overlap: Overlap, cleanup: str
) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, overlap=overlap))
        await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        ((run, _),) = (await schedule.runs()).values()
        await schedule.passes(HOUR)
        await trigger_schedule(r.w.store, schedule.id, None)
        for _ in range(2):
            await take_turn(r.w.store, schedule.id)
            await r.carry_on()
        assert await r.states(run) == {"a": "cancelled", "clean": cleanup}
        assert await all_runs(r) == (1 if cleanup == "running" else 2)


async def test_the_end_of_a_run_wakes_the_schedule_for_the_run_that_waits(database: str) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, r.standing(WAITING), overlap=Overlap.BUFFER_ONE))
        await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        await schedule.passes(HOUR)
        await trigger_schedule(r.w.store, schedule.id, None)
        assert not await take_turn(r.w.store, schedule.id)
        async with r.w.store.database.connection() as connection:
            await connection.execute("DELETE FROM outbox")
            ((run, _),) = (await schedule.runs()).values()
            await r.finish()
            assert (await r.view(run)).state == "success"
            rows = await connection.execute("SELECT subject FROM outbox WHERE kind = 'schedule'")
            assert [row["subject"] for row in await rows.fetchall()] == [schedule.id]
        await take_turn(r.w.store, schedule.id)
        assert await all_runs(r) == 2


async def test_a_start_by_hand_in_temporal_has_a_run_and_one_of_earlier_times_has_none(
    database: str,
) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, AT_ONCE))
        now = datetime.now(UTC).replace(microsecond=0)
        old = await start_scheduled(r.w.store, await schedule.tick(now, times="of before"))
        assert old.reason == "it is no time of the schedule as it is now"
        assert (await start_scheduled(r.w.store, await schedule.tick(now))).run_id is not None
        long_ago = await start_scheduled(r.w.store, await schedule.tick(now - timedelta(days=9)))
        assert long_ago.reason == "this time is not within the catch-up window"


async def test_times_while_it_is_paused_or_too_long_ago_are_left_out(database: str) -> None:
    async with runs(database) as r:
        schedule, last = await hourly(r, catch_up=3 * 3600 + 60, overlap=Overlap.ALLOW_ALL)
        await pause_schedule(r.w.store, schedule.id, None)
        await schedule.passes(2 * HOUR)
        answer = await start_scheduled(r.w.store, await schedule.tick(last))
        assert answer.reason == "the schedule was paused or had other times then"
        assert await schedule.runs() == {}, "what was due before the pause waits"
        await resume_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        assert len(await schedule.runs()) in {1, 2}, "3 h of which 2 h are a pause"
        assert max(await schedule.runs()) == last - 2 * HOUR


async def test_more_runs_than_one_turn_starts_follow_in_the_next_ones(database: str) -> None:
    async with runs(database) as r:
        schedule, _ = await hourly(r, definition=AT_ONCE, overlap=Overlap.ALLOW_ALL)
        assert await due_schedules(r.w.store) == [schedule.id], "its times were never computed"
        assert await take_turn(r.w.store, schedule.id)
        assert 1 <= await all_runs(r) < 24
        while await take_turn(r.w.store, schedule.id):
            pass
        assert await all_runs(r) == 24
        assert await due_schedules(r.w.store) == []
        (figures,) = await schedule_figures(r.w.store, r.w.user_id)
        assert (figures.waiting, figures.refused, figures.overdue_seconds) == (0, 0, 0)
        assert 22 * 3600 < figures.late_seconds < 25 * 3600
        await schedule.passes(2 * HOUR)
        assert await due_schedules(r.w.store) == [schedule.id]
        (figures,) = await schedule_figures(r.w.store, r.w.user_id)
        assert 3600 < figures.overdue_seconds < 2 * 3600


async def test_a_start_is_decided_again_in_the_transaction_that_creates_its_run(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, overlap=Overlap.BUFFER_ALL))
        await trigger_schedule(r.w.store, schedule.id, Overlap.ALLOW_ALL)
        await take_turn(r.w.store, schedule.id)
        await schedule.passes(HOUR)
        await trigger_schedule(r.w.store, schedule.id, None)
        await schedule.passes(HOUR)
        real = read_job

        async def another_turn_first(*arguments: Any) -> Any:
            monkeypatch.setattr(ticks, "read_job", real)
            await trigger_schedule(r.w.store, schedule.id, Overlap.CANCEL_OTHER)
            await take_turn(r.w.store, schedule.id)
            return await real(*arguments)

        monkeypatch.setattr(ticks, "read_job", another_turn_first)
        await take_turn(r.w.store, schedule.id)
        active = sorted(await schedule.runs())
        starts = sorted(await schedule.starts())
        assert active == [starts[0], starts[2]], "the second one waits, the first one hinders none"


async def test_a_backfill_starts_what_was_asked_for_also_after_a_change(database: str) -> None:
    async with runs(database) as r:
        schedule, last = await hourly(r, overlap=Overlap.SKIP, catch_up=3 * 3600)
        await take_turn(r.w.store, schedule.id)
        ((at, (run, _)),) = (await schedule.runs()).items()
        left_out = {time for time, one in (await schedule.starts()).items() if one.reason}
        assert left_out == {at + HOUR * n for n in range(1, 4) if at + HOUR * n <= last}
        await cancel_run(r.w.store, run, CancelRun(skip_cleanup=True))
        await r.carry_on()
        asked = BackfillSchedule(first=at, last=last, overlap=Overlap.ALLOW_ALL)
        answer = await backfill_schedule(r.w.store, await schedule.info(), asked)
        assert (set(answer.times), answer.have_runs) == (left_out, 1)
        info = await schedule.info()
        other = {"interval": Interval(every=timedelta(days=1), offset=timedelta(hours=3))}
        await change_schedule(r.w.store, r.w.user_id, info.model_copy(update=other))
        await take_turn(r.w.store, schedule.id)
        assert set(await schedule.runs()) == {at} | left_out


async def test_turns_at_the_same_time_decide_one_after_the_other(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second turn would start another run, beside the one that the first turn is about to start."""
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, overlap=Overlap.BUFFER_ALL))
        await trigger_schedule(r.w.store, schedule.id, None)
        await schedule.passes(HOUR)
        real = start_within
        turns: list[asyncio.Task[bool]] = []

        async def while_another_waits(*arguments: Any) -> Any:
            monkeypatch.setattr(ticks, "start_within", real)
            async with r.w.store.database.connection() as connection:
                await connection.execute(
                    "INSERT INTO schedule_starts (schedule_id, nominal_time, kind, overlap)"
                    " SELECT id, now(), 'trigger', 'cancel_other' FROM schedules"
                )
                turns.append(asyncio.create_task(take_turn(r.w.store, schedule.id)))

                async def it_waits_or_has_gone_on() -> bool:
                    waits = (
                        "SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
                    )
                    return turns[0].done() or (await connection.execute(waits)).rowcount > 0

                await wait_until_async(it_waits_or_has_gone_on)
            return await real(*arguments)

        monkeypatch.setattr(ticks, "start_within", while_another_waits)
        await take_turn(r.w.store, schedule.id)
        await turns[0]
        assert len(await schedule.runs()) == 1


async def test_a_tick_has_its_run_in_whatever_order_ticks_come(database: str) -> None:
    """Jitter delays them; nobody else may start their runs before it has passed."""
    async with runs(database) as r:
        hours = {"jitter": 12 * 3600, "overlap": Overlap.ALLOW_ALL}
        schedule, last = await hourly(r, definition=AT_ONCE, **hours)
        await take_turn(r.w.store, schedule.id)
        assert last - 11 * HOUR not in await schedule.runs()
        order = [last, last - 3 * HOUR, last, last - 7 * HOUR, last - 5 * HOUR]
        answers = [await start_scheduled(r.w.store, await schedule.tick(at)) for at in order]
        found = await schedule.runs()
        assert [one.run_id for one in answers] == [found[at][0] for at in order]
        assert last - 4 * HOUR not in found
        await schedule.passes(12 * HOUR)
        while await take_turn(r.w.store, schedule.id):
            pass
        assert {last - n * HOUR for n in range(12, 24)} <= set(await schedule.runs())
