"""Shares of a pool: who waits for whom."""

import asyncio

import pytest
from psycopg_pool import PoolTimeout

from mitosis.store.pg.turns import CALLER, Turns


async def hold(turns: Turns, caller: str | None, until: asyncio.Event, got: list[str]) -> None:
    CALLER.set(caller)
    async with turns.turn():
        got.append(str(caller))
        async with turns.turn():  # a second one would be one too many
            await until.wait()


async def steps() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_caller_waits_behind_its_own_calls_only() -> None:
    turns, end, got = Turns(2, 60.0), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as together:
        for caller in ("ann", "ann", "ann", "ann", "ben", None, None, None):
            together.create_task(hold(turns, caller, end, got))
        await steps()
        assert got == ["ann", "ann", "ben", "None", "None", "None"]
        assert turns.callers == 2
        end.set()
    assert got.count("ann") == 4
    assert turns.callers == 0, "nothing is kept of who has gone"


async def test_a_turn_that_does_not_come_is_refused_and_a_cancelled_wait_takes_none() -> None:
    turns, end, got = Turns(1, 0.05), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as together:
        first = together.create_task(hold(turns, "ann", end, got))
        await steps()
        with pytest.raises(PoolTimeout):
            await asyncio.create_task(hold(turns, "ann", end, got))
        waiting = asyncio.create_task(hold(turns, "ann", end, got))
        await steps()
        waiting.cancel()
        await asyncio.wait([waiting])
        end.set()
        await first
        await hold(turns, "ann", end, got)
    assert got == ["ann", "ann"]
    assert turns.callers == 0
