"""The pauses of a worker service that cannot start its slots: their length, and what comes before them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.retry_policy import Backoff, RetryPolicy
from mitosis.worker_service import slot_pauses
from mitosis.worker_service.slot_pauses import SlotPauses
from tests.support.waiting import wait_until_async


class Parts:
    """In the place of session, workers, registration and reporter: notes what is called."""

    def __init__(self) -> None:
        self.workers = self
        self.calls: list[str] = []
        self.away = False
        self.fails = 0
        """So many times it cannot start over."""
        self.postponed: list[str] = []
        self.reported = asyncio.Event()
        self.reported.set()
        self.running: list[asyncio.Task[None]] = []

    def background(self, coroutine: Coroutine[None, None, None]) -> None:
        self.running.append(asyncio.get_running_loop().create_task(coroutine))

    async def pause(self, reason: str) -> None:
        self.calls.append(f"pause: {reason}")

    async def start_after_pause(self) -> None:
        self.calls.append("start")

    async def quiet(self) -> None:
        await self.reported.wait()
        self.calls.append("reported")

    def pending(self) -> list[str]:
        return self.postponed

    async def start_over(self, reason: str) -> None:
        self.calls.append(reason)
        if self.away or self.fails:
            self.fails = max(0, self.fails - 1)
            raise DatabaseUnavailable


@pytest.fixture
async def parts() -> Parts:
    return Parts()


@pytest.fixture
async def pauses(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> SlotPauses:
    policy = RetryPolicy(first_seconds=0.01, longest_seconds=0.02, jitter=0.0)
    monkeypatch.setattr(slot_pauses, "PAUSES", policy)
    given: Any = parts
    return SlotPauses(given, given, given)


async def paused(parts: Parts, pauses: SlotPauses, reason: str = "no process") -> list[str]:
    """Pause once, and return what was called."""
    parts.calls.clear()
    pauses.begin(reason)
    await parts.running[-1]
    return list(parts.calls)


async def test_what_is_held_is_given_back_after_the_reports_and_before_the_next_start(
    parts: Parts, pauses: SlotPauses
) -> None:
    expected = ["pause: no process", "reported", "pauses for 0.01 s: no process", "start"]
    assert await paused(parts, pauses) == expected


async def test_pauses_grow_to_a_bound_until_a_start_lasts(
    parts: Parts, pauses: SlotPauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [(await paused(parts, pauses))[2] for _ in range(3)]
    assert [one.split()[2] for one in said] == ["0.01", "0.02", "0.02"]
    monkeypatch.setattr(slot_pauses, "LASTING_SECONDS", 0.0)
    assert (await paused(parts, pauses))[2].split()[2] == "0.01"


async def test_a_second_reason_during_a_pause_changes_nothing(
    parts: Parts, pauses: SlotPauses
) -> None:
    pauses.begin("first")
    pauses.begin("second")
    assert len(parts.running) == 1
    await parts.running[0]


async def test_what_could_not_be_given_back_is_tried_again_during_the_pause(
    parts: Parts, pauses: SlotPauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_pauses, "GIVE_BACK_AGAIN_SECONDS", 0.001)
    parts.fails = 2
    monkeypatch.setattr(
        pauses,
        "_backoff",
        Backoff(RetryPolicy(first_seconds=30.0, longest_seconds=30.0, jitter=0.0)),
    )
    pauses.begin("no process")
    await wait_until_async(lambda: len(parts.calls) == 7)
    assert [call.partition(":")[0] for call in parts.calls[2::2]] == ["pauses for 30 s"] * 3
    parts.running[0].cancel()


async def test_it_starts_again_although_the_api_is_away_or_reports_wait(
    parts: Parts, pauses: SlotPauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for the answer to its report is not given back: it would run again."""
    parts.away = True
    assert (await paused(parts, pauses))[-1] == "start"
    parts.postponed.append("a report")
    assert set(await paused(parts, pauses)) == {"pause: no process", "reported", "start"}
    parts.reported.clear()
    monkeypatch.setattr(slot_pauses, "REPORT_SECONDS", 0.0)
    assert await paused(parts, pauses) == ["pause: no process", "start"]
