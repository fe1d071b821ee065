"""Random lives of a schedule: one run for each time that was due and each request, whatever dies.

Drawn: time passes (also 2,500 times of it), ticks of Temporal in any order, twice, or none while it is away,
turns that are killed between and within their transactions, turns at the same time, pauses that drop what
waits or do not, notes and other times, also while the jitter of a time has not passed, starts by hand and
backfills, and an upgrade that refuses all starts.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest import mock

import pytest

from mitosis.contracts.errors import UpgradeInProgress
from mitosis.contracts.overlap import Overlap
from mitosis.contracts.runs import CancelRun
from mitosis.contracts.schedules import BackfillSchedule, Interval
from mitosis.store.runs.stopping import cancel_run
from mitosis.store.schedules.requests import backfill_schedule, trigger_schedule
from mitosis.store.schedules.schedules import (
    DROPPED,
    change_schedule,
    pause_schedule,
    resume_schedule,
)
from mitosis.store.schedules.ticks import start_scheduled, take_turn
from tests.support.runs import Runs, runs
from tests.support.schedules import AT_ONCE, WAITING, Killed, Scheduled, killed_after, made

EVERY = timedelta(minutes=10)
NEVER_LEFT_OUT = frozenset({Overlap.BUFFER_ALL, Overlap.ALLOW_ALL})
LATE = timedelta(days=365)


def offsets(now: datetime) -> tuple[timedelta, timedelta]:
    """Return two offsets of the interval whose times are minutes away from now: a test takes seconds."""
    at = timedelta(seconds=int(now.timestamp() + 180) % 600)
    return at, timedelta(seconds=(int(at.total_seconds()) + 180) % 600)


@dataclass
class Life:
    """A schedule, and what must become of it."""

    schedule: Scheduled
    random: Random
    offsets: tuple[timedelta, timedelta]
    overlap: Overlap
    since: datetime | None
    """From when on the times count; None: it is paused."""
    jitter: timedelta = timedelta(0)
    now_at: int = 0
    due: set[datetime] = field(default_factory=set)
    asked: set[datetime] = field(default_factory=set)
    later: set[datetime] = field(default_factory=set)
    """Times of earlier specifications, of which the jitter has not passed."""
    triggered: set[datetime] = field(default_factory=set)
    ran: set[datetime] = field(default_factory=set)
    """Those that had runs when it was paused."""

    async def step(self) -> None:
        times_and_turns = [
            self.passes,
            self.passes,
            self.turn,
            self.ticks,
            self.dies,
            self.together,
        ]
        changes = [self.pauses_or_resumes, self.note, self.other_times]
        runs = [self.trigger, self.backfill, self.upgrade, self.a_run_ends]
        kind = self.random.choice([*times_and_turns, *changes, *runs])
        await kind()

    async def passes(self, times: int | None = None) -> None:
        time = (times or self.random.randint(1, 4)) * EVERY
        await self.schedule.passes(time)
        for name in ("due", "asked", "later", "triggered", "ran"):
            setattr(self, name, {one - time for one in getattr(self, name)})
        if self.since is not None:
            self.since -= time
        now = datetime.now(UTC)
        self.due |= {one for one in self.pending() if one <= now - self.jitter}

    def pending(self) -> set[datetime]:
        """Return the times that have come, of each of which Temporal may wake us now."""
        if self.since is None:
            return set()
        offset = datetime(1970, 1, 1, tzinfo=UTC) + self.offsets[self.now_at]
        at = offset + ((self.since - offset) // EVERY + 1) * EVERY
        now, found = datetime.now(UTC), set(self.later)
        while at <= now:
            found.add(at)
            at += EVERY
        return found

    async def turn(self) -> None:
        while await take_turn(self.schedule.r.w.store, self.schedule.id):
            pass

    async def ticks(self) -> None:
        """Temporal wakes us for some times, in any order, some twice; and for one that is none."""
        known = sorted(self.due | self.asked | self.pending())
        chosen = [self.random.choice(known) for _ in range(min(len(known), 3))]
        for at in [*chosen, datetime.now(UTC).replace(microsecond=0)]:
            given = await self.schedule.tick(at, times="other times than these")
            answer = await start_scheduled(self.schedule.r.w.store, given)
            assert (answer.run_id is None) != (answer.reason is None)
            assert at in known or answer.run_id is None, "it is no time"
            self.due |= {at} & self.pending()

    async def dies(self) -> None:
        database = self.schedule.r.w.store.database
        with killed_after(database, self.random.randint(0, 9)), suppress(Killed):
            await self.turn()

    async def together(self) -> None:
        store, id_ = self.schedule.r.w.store, self.schedule.id
        await asyncio.gather(*(take_turn(store, id_) for _ in range(3)))

    async def pauses_or_resumes(self) -> None:
        store, id_ = self.schedule.r.w.store, self.schedule.id
        if self.since is None:
            await resume_schedule(store, id_, None)
            self.since = datetime.now(UTC)
        else:
            if self.random.random() < 0.5:
                await self.passes()  # no turn has taken these
            drop = self.random.random() < 0.3
            await pause_schedule(store, id_, None, drop=drop)
            self.since, self.later = None, set()
            self.ran = set(await self.schedule.runs())
            if drop:
                starts = await self.schedule.starts()
                self.due &= set(starts)
                assert all(one.ended_at is not None for one in starts.values())
            await self.check()

    async def note(self) -> None:
        await self._change(note=f"note {self.random.random()}")

    async def other_times(self) -> None:
        if self.random.random() < 0.5:
            await self.passes()
        await self.change_times()
        await self.check()

    async def change_times(self) -> None:
        self.later = self.pending() - self.due
        self.now_at = 1 - self.now_at
        await self._change(interval=Interval(every=EVERY, offset=self.offsets[self.now_at]))
        if self.since is not None:
            self.since = datetime.now(UTC)

    async def _change(self, **fields: Any) -> None:
        info = await self.schedule.info()
        r = self.schedule.r
        await change_schedule(r.w.store, r.w.user_id, info.model_copy(update=fields))

    async def trigger(self) -> None:
        answer = await trigger_schedule(self.schedule.r.w.store, self.schedule.id, None)
        self.asked.add(answer.nominal_time)
        self.triggered.add(answer.nominal_time)

    async def backfill(self) -> None:
        last = datetime.now(UTC) - timedelta(days=1)
        asked = BackfillSchedule(first=last - self.random.randint(1, 3) * EVERY, last=last)
        answer = await backfill_schedule(self.schedule.r.w.store, await self.schedule.info(), asked)
        self.asked |= set(answer.times)

    async def upgrade(self) -> None:
        refused = mock.patch(
            "mitosis.store.schedules.ticks.start_within", side_effect=UpgradeInProgress("older")
        )
        with refused:
            await take_turn(self.schedule.r.w.store, self.schedule.id)

    async def a_run_ends(self) -> None:
        for run, state in (await self.schedule.runs()).values():
            if state == "running":
                await cancel_run(self.schedule.r.w.store, run, CancelRun(skip_cleanup=True))
                await self.schedule.r.carry_on()
                return

    async def check(self) -> None:
        await self.turn()
        starts, found = await self.schedule.starts(), await self.schedule.runs()
        assert set(starts) == self.due | self.asked
        for at, one in starts.items():
            assert one.run_id == (found[at][0] if at in found else None)
            assert (one.ended_at is None) == (one.run_id is None and one.reason is None)
        assert set(found) <= set(starts)
        active = [state for _, state in found.values() if state in {"running", "pending"}]
        assert len(active) <= 1 or self.overlap is Overlap.ALLOW_ALL
        assert self.since is not None or set(found) <= self.ran | self.triggered, "it is paused"
        left_out = [one.reason for one in starts.values() if one.reason not in (None, DROPPED)]
        assert not left_out or self.overlap not in NEVER_LEFT_OUT, left_out

    async def ends(self) -> None:
        """Nothing waits for ever: each start has a run or a reason when the runs have ended."""
        if self.since is None:
            await self.pauses_or_resumes()
        await self.check()
        while any(one.ended_at is None for one in (await self.schedule.starts()).values()):
            await self.a_run_ends()
            await self.check()


async def born(r: Runs, random: Random, *, jitter: timedelta = timedelta(0), **fields: Any) -> Life:
    both = offsets(datetime.now(UTC))
    interval = Interval(every=EVERY, offset=both[0])
    given = {"interval": interval, "catch_up": LATE, "jitter": jitter, **fields}
    schedule = Scheduled(r, await made(r, **given))
    return Life(schedule, random, both, fields["overlap"], datetime.now(UTC), jitter)


@pytest.mark.parametrize(
    ("overlap", "definition", "jitter"),
    [
        (Overlap.ALLOW_ALL, AT_ONCE, 0),
        (Overlap.ALLOW_ALL, AT_ONCE, 2),
        (Overlap.BUFFER_ALL, WAITING, 1),
        (Overlap.BUFFER_ONE, WAITING, 0),
        (Overlap.SKIP, WAITING, 0),
        (Overlap.CANCEL_OTHER, WAITING, 1),
    ],
)
async def test_a_schedule_starts_one_run_for_each_time_and_request(
    database: str, overlap: Overlap, definition: Any, jitter: int
) -> None:
    seed = Random().randrange(10**6)
    print("seed", seed)
    async with runs(database) as r:
        fields = {"overlap": overlap, "definition": definition}
        life = await born(r, Random(seed), jitter=jitter * EVERY, **fields)
        for _ in range(14):
            await life.step()
            if life.random.random() < 0.3:
                await life.check()
        await life.ends()


async def test_2500_missed_times_are_all_made_up_for_while_processes_die(database: str) -> None:
    async with runs(database) as r:
        life = await born(r, Random(1), overlap=Overlap.SKIP)
        await life.passes(2500)
        for commits in (1, 2, 3):
            with killed_after(r.w.store.database, commits), suppress(Killed):
                await life.turn()
        await life.change_times()
        await life.passes(1)
        await life.check()
        assert len(life.due) == 2501
        assert len(await life.schedule.runs()) == 1
