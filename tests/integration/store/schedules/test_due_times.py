"""Times of a schedule that are due: many at once, with jitter, and those that this host cannot read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mitosis.contracts.errors import TooLarge
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.schedules import BackfillSchedule, Interval, ScheduleQuery
from mitosis.store.schedules import due_times, requests
from mitosis.store.schedules.carrying import carried_schedules, note_problem
from mitosis.store.schedules.requests import backfill_schedule, trigger_schedule
from mitosis.store.schedules.schedules import (
    change_schedule,
    list_schedules,
    pause_schedule,
    resume_schedule,
)
from mitosis.store.schedules.ticks import start_scheduled, take_turn
from tests.support.runs import Runs, runs
from tests.support.schedules import AT_ONCE, Scheduled, made

HOUR = timedelta(hours=1)
HALF = timedelta(minutes=30)


async def hourly(r: Runs, **fields: Any) -> tuple[Scheduled, datetime]:
    """Return a schedule since yesterday, whose last time was half an hour ago."""
    last = datetime.now(UTC).replace(microsecond=0) - HALF
    offset = timedelta(seconds=last.timestamp() % 3600)
    given = {"interval": Interval(every=HOUR, offset=offset), "overlap": Overlap.ALLOW_ALL}
    one = Scheduled(r, await made(r, **{"definition": AT_ONCE, **given, **fields}))
    await one.passes(timedelta(days=1))
    return one, last


async def all_turns(schedule: Scheduled) -> None:
    while await take_turn(schedule.r.w.store, schedule.id):
        pass


@pytest.mark.parametrize(
    ("statement", "says", "cannot_start"),
    [
        ("UPDATE schedules SET time_zone = 'Mars/Base'", "Mars/Base", True),
        ('UPDATE schedules SET timing = \'{"interval": {"every": 1}}\'', "at least 10", False),
        ('UPDATE schedules SET timing = \'{"cron": "* *"}\'', "cron", False),
    ],
)
async def test_a_row_that_this_host_cannot_read_is_shown_and_stops_nothing_else(
    database: str, statement: str, says: str, cannot_start: bool
) -> None:
    """Another version has stored it, or another host, which knows more time zones."""
    async with runs(database) as r:
        schedule, last = await hourly(r, cron="0 2 * * *", interval=None, catch_up=9 * 86400)
        await made(r, name="other")
        await all_turns(schedule)
        before = len(await schedule.runs())
        await r.w.rows(statement + " WHERE name = 'nightly'")
        await schedule.passes(2 * timedelta(days=1))
        bad, good = await carried_schedules(r.w.store)
        assert (bad.name, good.name) == ("nightly", "other")
        await note_problem(r.w.store, bad, "seen")
        listed = await list_schedules(r.w.store, r.w.user_id, ScheduleQuery())
        assert [one.name for one in listed.items] == ["nightly", "other"]
        assert listed.items[0].problem is not None
        asked = await trigger_schedule(r.w.store, schedule.id, None)
        assert not await take_turn(r.w.store, schedule.id)
        assert (says in str((await schedule.info()).refusal)) == cannot_start
        assert (asked.nominal_time in await schedule.runs()) != cannot_start
        answer = await start_scheduled(r.w.store, await schedule.tick(last, times="of before"))
        assert says in str(answer.reason)
        for table in ("schedules", "schedule_spans"):
            readable = f"UPDATE {table} SET time_zone = 'UTC', timing = %s"  # noqa: S608
            await r.w.rows(readable, '{"cron": "0 2 * * *"}')
        await all_turns(schedule)
        assert len(await schedule.runs()) >= before + 3, "no time is lost"


async def test_with_jitter_a_change_keeps_times_and_a_pause_drops_those_that_have_not_come(
    database: str,
) -> None:
    async with runs(database) as r:
        schedule, last = await hourly(r, jitter=3 * 3600)
        info = await schedule.info()
        other = {"interval": Interval(every=timedelta(days=30))}
        await change_schedule(r.w.store, r.w.user_id, info.model_copy(update=other))
        await all_turns(schedule)
        assert max(await schedule.runs()) == last - 3 * HOUR, (
            "the jitter of later ones may not have passed"
        )
        answer = await start_scheduled(r.w.store, await schedule.tick(last - HOUR))
        assert answer.run_id is not None
        await schedule.passes(HOUR)
        last -= HOUR
        await all_turns(schedule)
        assert max(set(await schedule.runs()) - {last - HOUR}) == last - 2 * HOUR
        await pause_schedule(r.w.store, schedule.id, None)
        await all_turns(schedule)
        await resume_schedule(r.w.store, schedule.id, None)
        await schedule.passes(5 * HOUR)
        await all_turns(schedule)
        assert max(await schedule.runs()) == last - 6 * HOUR, "the last one was dropped"


async def test_only_so_many_starts_wait_and_more_are_refused(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (due_times, requests):
        monkeypatch.setattr(module, "MAX_WAITING", 5)
    async with runs(database) as r:
        schedule, last = await hourly(r, overlap=Overlap.BUFFER_ALL, catch_up=7 * 3600)
        await r.w.rows(
            "INSERT INTO schedule_starts (schedule_id, nominal_time, kind, ended_at, reason)"
            " SELECT id, %s, 'time', now(), 'takes no place' FROM schedules",
            last - 6 * HOUR,
        )
        with monkeypatch.context() as patch:
            patch.setattr("mitosis.store.schedules.ticks.MOST_STARTS", 0)
            await take_turn(r.w.store, schedule.id)
        starts = await schedule.starts()
        assert [one.reason for one in starts.values()] == [
            "takes no place",
            *[None] * 5,
            due_times.TOO_MANY,
        ]
        with pytest.raises(TooLarge, match="more than 5") as refused:
            await trigger_schedule(r.w.store, schedule.id, None)
        assert refused.value.facts["limit"] == 5
        again = BackfillSchedule(first=last - 4 * HOUR, last=last - HOUR)
        answer = await backfill_schedule(r.w.store, await schedule.info(), again)
        assert len(answer.times) == 4, "those wait already"
        await all_turns(schedule)
        assert len(await schedule.runs()) == 5
