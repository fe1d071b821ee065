"""Starts of a schedule that wait: for other processes, for a resume, behind others, or after failures."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from mitosis.contracts.errors import UpgradeInProgress
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.runs import CancelRun, RerunRun
from mitosis.contracts.schedules import BackfillSchedule
from mitosis.jobs.reading import definition_of
from mitosis.store.jobs.jobs import define_job
from mitosis.store.runs.starting import rerun
from mitosis.store.runs.stopping import cancel_run
from mitosis.store.runs.turns import give_up
from mitosis.store.schedules import ticks
from mitosis.store.schedules.carrying import due_schedules
from mitosis.store.schedules.deciding import NOT_ENDED, Waiting, decide
from mitosis.store.schedules.figures import schedule_figures
from mitosis.store.schedules.requests import backfill_schedule, trigger_schedule
from mitosis.store.schedules.rights import check_rights
from mitosis.store.schedules.schedules import DROPPED, pause_schedule, resume_schedule
from mitosis.store.schedules.ticks import take_turn
from mitosis.store.users.accounts import add_member, create_user
from tests.support.runs import Runs, runs
from tests.support.schedules import AT_ONCE, WAITING, Scheduled, made

HOUR = timedelta(hours=1)
OLDER = (
    "INSERT INTO live_processes (id, kind, version, host_name, pid, knows, beat_at)"
    " VALUES (gen_random_uuid(), 'api', '0.0.1', 'old', 7, '{\"task_states\": [0, 1, 2, 3, 4]}', now())"
)


async def add(r: Runs, overlaps: Sequence[Overlap | None], kind: str = "time") -> None:
    """Have starts wait, in this order."""
    async with r.w.store.database.connection() as connection:
        await connection.execute(
            "INSERT INTO schedule_starts (schedule_id, nominal_time, kind, overlap)"
            " SELECT s.id, now() - interval '9 h' + t.n * interval '1 s', %(kind)s, t.overlap"
            " FROM schedules AS s,"
            " unnest(%(overlaps)s::text[]) WITH ORDINALITY AS t (overlap, n) ORDER BY t.n",
            {"overlaps": [None if one is None else one.value for one in overlaps], "kind": kind},
        )


async def test_no_run_of_a_schedule_is_stored_that_an_older_process_would_carry_on(
    database: str,
) -> None:
    """It would fill in null for the time: templates of tasks name it."""
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, AT_ONCE))
        await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        ((run, _),) = (await schedule.runs()).values()
        await r.w.rows(OLDER)
        with pytest.raises(UpgradeInProgress, match=r"0\.0\.1 on old .* runs of schedules"):
            await rerun(r.w.store, run, r.w.user_id, RerunRun())
        await schedule.passes(HOUR)
        await trigger_schedule(r.w.store, schedule.id, None)
        assert not await take_turn(r.w.store, schedule.id)
        assert len(await schedule.runs()) == 1
        assert "runs of schedules" in str((await schedule.info()).refusal)
        await r.start(AT_ONCE)
        await r.w.rows("DELETE FROM live_processes")
        await take_turn(r.w.store, schedule.id)
        assert len(await schedule.runs()) == 2, "it has waited"


@pytest.mark.parametrize("overlap", [Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER])
async def test_a_run_gives_way_only_to_a_start_that_may_run(
    database: str, overlap: Overlap
) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, overlap=overlap))
        await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)

        async def asked() -> datetime:
            await schedule.passes(HOUR)
            return (await trigger_schedule(r.w.store, schedule.id, None)).nominal_time

        async def refused() -> str:
            assert not await take_turn(r.w.store, schedule.id)
            assert await r.w.rows("SELECT stopped_by FROM runs") == [{"stopped_by": None}]
            return str((await schedule.info()).refusal)

        await asked()
        await r.w.rows(OLDER)
        assert "runs of schedules" in await refused()
        await r.w.rows("DELETE FROM live_processes")
        other = await create_user(r.w.store, "other", is_admin=False)
        await add_member(r.w.store, r.user, "other", "write")
        await define_job(
            r.w.store, other.user_id, r.user, definition_of(WAITING | {"max_concurrent_runs": 3})
        )
        assert "was stored by other" in await refused()
        assert all(one.ended_at for one in (await schedule.starts()).values()), "it ends"
        await define_job(
            r.w.store, r.w.user_id, r.user, definition_of(WAITING | {"parameters": {"day": {}}})
        )
        await asked()
        assert "day" in await refused()
        await define_job(r.w.store, r.w.user_id, r.user, definition_of(WAITING))
        await asked()
        await take_turn(r.w.store, schedule.id)
        assert await r.w.rows("SELECT stopped_by FROM runs") == [{"stopped_by": "cancel"}]


async def test_a_run_gives_way_to_no_start_that_a_pause_holds_up(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, overlap=Overlap.CANCEL_OTHER))
        await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        await add(r, [None])
        await schedule.passes(HOUR)
        await trigger_schedule(r.w.store, schedule.id, Overlap.BUFFER_ALL)

        async def paused_first(*arguments: Any, **named: Any) -> None:
            await pause_schedule(r.w.store, schedule.id, None)
            await check_rights(*arguments, **named)

        monkeypatch.setattr(ticks, "check_rights", paused_first)
        await take_turn(r.w.store, schedule.id)
        assert await r.w.rows("SELECT stopped_by FROM runs") == [{"stopped_by": None}]
        monkeypatch.undo()
        await resume_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        assert await r.w.rows("SELECT stopped_by FROM runs") == [{"stopped_by": "cancel"}]


async def test_what_waits_starts_after_a_pause_or_is_dropped_with_it(database: str) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, AT_ONCE, overlap=Overlap.ALLOW_ALL))
        yesterday = datetime.now(UTC) - timedelta(days=1)
        asked = BackfillSchedule(first=yesterday - timedelta(days=2), last=yesterday)
        await add(r, [None])
        await backfill_schedule(r.w.store, await schedule.info(), asked)
        await pause_schedule(r.w.store, schedule.id, None)
        assert not await take_turn(r.w.store, schedule.id)
        assert await due_schedules(r.w.store) == []
        await trigger_schedule(r.w.store, schedule.id, None)
        assert await due_schedules(r.w.store) == [schedule.id]
        await take_turn(r.w.store, schedule.id)
        assert len(await schedule.runs()) == 1, "only that by hand"
        await resume_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        assert len(await schedule.runs()) == 4
        await add(r, [None, None], "backfill")
        await pause_schedule(r.w.store, schedule.id, "off", drop=True)
        await pause_schedule(r.w.store, schedule.id, "off", drop=True)
        reasons = [one.reason for one in (await schedule.starts()).values()]
        assert reasons.count(DROPPED) == 2
        await resume_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        assert len(await schedule.runs()) == 4


async def test_of_many_starts_the_same_are_chosen_as_of_all_of_them(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Urgent ones do not wait behind others, the newest one replaces, and all of the others are left out."""
    monkeypatch.setattr(ticks, "MOST_LOOKED_AT", 5)
    random = Random()
    print("state", random.getstate()[1][:3])
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, overlap=Overlap.BUFFER_ALL))
        number = await r.w.value("SELECT id FROM schedules")
        for active in (False, True):
            if active:
                await trigger_schedule(r.w.store, schedule.id, Overlap.SKIP)
                await take_turn(r.w.store, schedule.id)
            for _ in range(6):
                kinds = random.sample(list(Overlap), random.randint(1, 6))
                given = random.choices(kinds, k=20)
                await add(r, given)
                rows = await r.w.rows(
                    "SELECT id, nominal_time, overlap FROM schedule_starts WHERE ended_at IS NULL ORDER BY id"
                )
                waiting = [Waiting(**row | {"overlap": Overlap(row["overlap"])}) for row in rows]
                expected = decide(waiting, active=active)
                found = await ticks._decided(r.w.store, number)
                assert (found.start, found.replacing) == (expected.start, expected.replacing), given
                skipped = await r.w.rows(
                    "DELETE FROM schedule_starts WHERE reason IS NOT NULL RETURNING id, reason"
                )
                assert sorted((row["id"], row["reason"]) for row in skipped) == sorted(
                    (one.id, reason) for one, reason in expected.skipped
                ), given
                await r.w.rows("DELETE FROM schedule_starts WHERE ended_at IS NULL RETURNING id")


async def test_the_starts_that_wait_are_read_a_few_times_and_not_once_for_each(
    database: str,
) -> None:
    """10,000 may wait; without statistics the planner takes them for one."""
    async with runs(database) as r:
        plan = await r.w.rows("EXPLAIN " + ticks.SQL["waiting"] % {"schedule": 1, "limit": 200})
        lines = [line.strip() for row in plan for line in row.values()]
        assert {"CTE w", "CTE ends"} <= set(lines), lines
        assert sum("schedules" in line for line in lines) == 2, lines
        assert any(line.startswith("InitPlan") for line in lines), lines


async def test_a_start_that_fails_for_no_known_reason_shows_it_and_ends_after_some_times(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r, AT_ONCE))
        first = await trigger_schedule(r.w.store, schedule.id, None)
        await schedule.passes(HOUR)
        second = await trigger_schedule(r.w.store, schedule.id, None)

        async def fails(*_: Any) -> Any:
            raise KeyError("our fault")

        with monkeypatch.context() as patch:
            patch.setattr(ticks, "read_job", fails)
            for number in range(ticks.MOST_FAILURES):
                starts = await schedule.starts()
                assert starts[first.nominal_time - HOUR].ended_at is None, number
                assert not await take_turn(r.w.store, schedule.id)
                assert "KeyError" in str((await schedule.info()).refusal)
        await take_turn(r.w.store, schedule.id)
        starts = await schedule.starts()
        assert "KeyError" in str(starts[first.nominal_time - HOUR].reason)
        assert set(await schedule.runs()) == {second.nominal_time}


async def test_a_trigger_that_is_left_out_says_why_and_the_figures_count_a_bounded_number(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.store.schedules.figures.MOST_COUNTED", 2)
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r))
        await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        assert (await schedule.info()).without_run is None
        await schedule.passes(HOUR)
        asked = await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        shown = (await schedule.info()).without_run
        assert shown is not None
        assert (shown.nominal_time, shown.reason) == (asked.nominal_time, NOT_ENDED)
        await add(r, [Overlap.BUFFER_ALL] * 3)
        (figures,) = await schedule_figures(r.w.store, r.w.user_id)
        assert figures.waiting == 2


async def test_a_run_that_is_given_up_wakes_its_schedule(database: str) -> None:
    async with runs(database) as r:
        schedule = Scheduled(r, await made(r))
        await trigger_schedule(r.w.store, schedule.id, None)
        await take_turn(r.w.store, schedule.id)
        ((run, _),) = (await schedule.runs()).values()
        number = await r.w.value("SELECT id FROM runs WHERE schedule_id IS NOT NULL")
        await cancel_run(r.w.store, run, CancelRun())
        await r.w.rows("DELETE FROM outbox RETURNING id")
        await give_up(r.w.store, number, "our fault")
        assert ("schedule", schedule.id) in await r.w.pokes()
