"""Which zygote counts when pauses and starts cross."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.execution.session_workers import SessionWorkers

KILLED = ExitReason(ExitKind.UNKNOWN)


class Owner:
    """In the place of a session without workers, its router and its pools: notes what is started."""

    def __init__(self) -> None:
        self.epoch = 1
        self.ending = False
        self.state = SimpleNamespace(workers=[], cannot_start=False)
        self.open: set[int] = set()
        self.made = 0
        self.may_start = asyncio.Event()
        self.running: list[asyncio.Task[None]] = []

    def handle(self, event: object) -> None:
        pass

    def drain(self) -> None:
        pass

    def background(self, coroutine: Coroutine[None, None, None]) -> None:
        self.running.append(asyncio.get_running_loop().create_task(coroutine))

    def pool(self, _: bool) -> Any:
        self.made += 1
        number = self.made
        self.open.add(number)

        async def start() -> object:
            await self.may_start.wait()
            return SimpleNamespace(forks=True, no_fork_reason="")

        async def close() -> None:
            self.open.discard(number)

        return SimpleNamespace(start=start, close=close)


@pytest.mark.parametrize("turns", range(6))
async def test_a_pause_ends_each_start_that_is_under_way(turns: int) -> None:
    """Else two zygotes run workers of the same slots, and the end of one counts for tasks of the other."""
    owner = Owner()
    given: Any = owner
    workers = SessionWorkers(given, given, owner.pool, lambda: None)
    owner.may_start.set()
    await workers.start()
    owner.may_start.clear()
    owner.open.clear()  # it is killed
    workers.zygote_ended(KILLED)
    for _ in range(turns):
        await asyncio.sleep(0)
    await workers.pause("no process")
    owner.may_start.set()
    await asyncio.gather(*owner.running)
    assert owner.open == set()
    await workers.start_after_pause()
    assert owner.open == {owner.made}
