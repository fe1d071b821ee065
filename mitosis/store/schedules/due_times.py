"""Stores the times of a schedule that are due, each as a start of a run (protocol P17).

A schedule has spans: from when to when which times. Up to ``from_at`` a span is settled. It moves on in the
transaction that stores the times, so a time is never left out, and the unique key of the starts stores none
twice, in any order of ticks. A span that has ended is settled to its end, then deleted.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mitosis.contracts.control import Model
from mitosis.contracts.schedule_control import (
    UNREADABLE,
    Tick,
    times_digest,
    unreadable_text,
)
from mitosis.contracts.schedules import MAX_WAITING, Timing
from mitosis.jobs.schedule_times import (
    is_a_time,
    may_be_a_time_elsewhere,
    repeats_a_time,
    times_after,
    times_between,
)
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("schedules/due_times.sql")
MOST_TIMES = 500
"""So many times are stored in one transaction; more follow in the next turn."""
AHEAD = timedelta(minutes=1)
"""The clock of Temporal may be ahead of that of PostgreSQL by so much."""
BY_HAND_WITHIN = timedelta(seconds=60)
"""A trigger of Temporal's own tools is of the time at which it was given."""
MICROSECOND = timedelta(microseconds=1)
TOO_MANY = f"{MAX_WAITING:,} runs of the schedule were waiting"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What has become of the times of a schedule."""

    schedule: int
    more: bool
    """Times are left for the next turn."""
    refused: str | None
    """Why a tick has no start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locked:
    id: int
    jitter_seconds: float
    catch_up_seconds: float
    paused: bool
    now: datetime

    @property
    def jitter(self) -> timedelta:
        return timedelta(seconds=self.jitter_seconds)

    @property
    def not_before(self) -> datetime:
        """Earlier times are not made up for."""
        return self.now - timedelta(seconds=self.catch_up_seconds) - self.jitter


class _Span(Model):
    id: int
    timing: Timing
    from_at: datetime
    to_at: datetime | None
    next_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """What is stored of a span."""

    times: list[datetime]
    from_at: datetime
    next_at: str | None = None
    is_over: bool = False


async def add_due_times(store: Store, schedule_id: UUID, tick: Tick | None = None) -> Due | None:
    """Store up to :data:`MOST_TIMES` times that are due, and that of the tick; None: the schedule is gone."""
    async with store.database.transaction() as connection:
        locked = await fetch_one(connection, _Locked, SQL["lock_times"], {"schedule": schedule_id})
        if locked is None:
            return None
        rows = await (await connection.execute(SQL["spans"], {"schedule": locked.id})).fetchall()
        refused = None
        if tick is not None:
            refused = await _add_tick(connection, locked, rows, tick)
        room = MOST_TIMES
        for row in rows:
            room -= await _settle(connection, locked, row, room)
            if room <= 0:
                break
        await connection.execute(SQL["forget"], {"schedule": locked.id})
    return Due(schedule=locked.id, more=room <= 0, refused=refused)


async def _settle(
    connection: Connection, locked: _Locked, row: Mapping[str, Any], room: int
) -> int:
    """Store the due times of a span, and note how far it is settled; return how many there were.

    A span that this host cannot read stays as it is, and the schedule shows why: others go on.
    """
    try:
        found = await asyncio.to_thread(_settled, locked, _Span.model_validate(row), room)
    except UNREADABLE as error:
        reason = unreadable_text(error)
        log.warning("schedule.unreadable", extra={"schedule": locked.id, "reason": reason})
        await connection.execute(SQL["unreadable"], {"schedule": locked.id, "reason": reason})
        return 0
    if found is None:
        return 0
    await _add(connection, locked, found.times, "time")
    given = {"span": row["id"], "from_at": found.from_at, "next_at": found.next_at}
    await connection.execute(SQL["end"] if found.is_over else SQL["settle"], given)
    return len(found.times)


def _settled(locked: _Locked, span: _Span, room: int) -> _Settled | None:
    """Return the due times of a span, at most ``room``, and how far it is settled then; None: as before.

    With jitter a time is due when it has passed, also after another specification of the times has come.
    """
    due = locked.now - locked.jitter
    until = due if span.to_at is None else min(span.to_at, due)
    first = max(span.from_at + MICROSECOND, locked.not_before)
    times = times_between(span.timing, first, until, room)
    if len(times) == room:
        return _Settled(times=times, from_at=times[-1])
    after = max(until, span.from_at)
    if span.to_at is not None and until == span.to_at:
        return _Settled(times=times, from_at=after, is_over=True)
    if not times and span.next_at is not None and span.next_at > until:
        return None
    following = next(times_after(span.timing, after), None)
    if span.to_at is not None and (following is None or following > span.to_at):
        return _Settled(times=times, from_at=after, is_over=True)
    following_at = "infinity" if following is None else following.isoformat()
    return _Settled(times=times, from_at=after, next_at=following_at)


async def _add_tick(
    connection: Connection, locked: _Locked, rows: list[dict[str, Any]], tick: Tick
) -> str | None:
    """Store the time for which Temporal wakes us, with jitter in any order; return why it has no start."""
    at = tick.nominal_time
    if not locked.not_before <= at <= locked.now + AHEAD:
        return "this time is not within the catch-up window"
    try:
        spans = [_Span.model_validate(row) for row in rows]
        if any(_has(span, at, locked) for span in spans):
            await _add(connection, locked, [at], "time")
            return None
        refused = _no_start_by_hand(await _timing(connection, locked), tick)
    except UNREADABLE as error:
        return unreadable_text(error)
    if refused is None:
        await _add(connection, locked, [at], "temporal")
    return refused


def _has(span: _Span, at: datetime, locked: _Locked) -> bool:
    """Return whether this is a time of the span that is not settled."""
    until = span.to_at or locked.now + AHEAD
    return span.from_at < at <= until and is_a_time(span.timing, at)


def _no_start_by_hand(timing: Timing, tick: Tick) -> str | None:
    """Return why a tick that is of no span is no start by hand either.

    Temporal may still have the times that the schedule had before, counts some times of the hour that is
    repeated in autumn twice, and may know an older or a newer law about the time zone than this host.
    """
    at = tick.nominal_time
    if is_a_time(timing, at):
        return "the schedule was paused or had other times then"
    if repeats_a_time(timing, at):
        return "this time counts once in the hour that is repeated"
    if may_be_a_time_elsewhere(timing, at):
        return (
            "Temporal has other data of the time zone: the schedule has this time earlier or later"
        )
    by_hand = abs(tick.started_at - at) < BY_HAND_WITHIN and tick.times == times_digest(timing)
    if not by_hand:
        return "it is no time of the schedule as it is now"
    return None


async def _add(connection: Connection, locked: _Locked, times: list[datetime], kind: str) -> None:
    if times:
        given = {
            "schedule": locked.id,
            "times": times,
            "kind": kind,
            "most": MAX_WAITING,
            "reason": TOO_MANY,
        }
        await connection.execute(SQL["add_times"], given)


class _Times(Model):
    timing: Timing


async def _timing(connection: Connection, locked: _Locked) -> Timing:
    rows = await connection.execute(SQL["timing"], {"schedule": locked.id})
    return _Times.model_validate(await rows.fetchone()).timing
