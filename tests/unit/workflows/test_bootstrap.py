"""The order and the pace in which reconcile starts what is missing, without a server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.control import Expected, Names, WorkflowKind
from mitosis.contracts.errors import TemporalUnavailable
from workflows.bootstrap import AT_ONCE, SHARE, Bootstrap
from workflows.client import target

HOST, SILENT, LEASED, OPEN, ALSO_OPEN, RUN = (UUID(int=number) for number in range(1, 7))
NAMES = {OPEN: Names(task_group="open")}


@dataclass
class Calls:
    """The client, the port, and the server behind both."""

    answer: Expected
    running: list[str] = field(default_factory=list)
    made: list[tuple[str, str, UUID, Names | None]] = field(default_factory=list)
    fails_at: UUID | None = None

    @property
    def temporal(self) -> "Calls":
        return self

    async def list_workflows(self, *_: Any, **__: Any) -> AsyncIterator[SimpleNamespace]:
        for one in self.running:
            yield SimpleNamespace(id=one)

    async def expected(self) -> Expected:
        return self.answer

    async def start(self, kind: WorkflowKind, subject: UUID, names: Names | None = None) -> None:
        self.made.append(("start", kind, subject, names))
        if subject == self.fails_at:
            raise TemporalUnavailable

    async def poke(self, kind: WorkflowKind, subject: UUID, names: Names | None = None) -> None:
        self.made.append(("poke", kind, subject, names))


class Clock:
    """The clock of the loop: each look at it takes a second, and a sleep its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def get_running_loop(self) -> SimpleNamespace:
        return SimpleNamespace(time=self._time)

    def _time(self) -> float:
        self.now += 1.0
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", made.get_running_loop)
    monkeypatch.setattr(asyncio, "sleep", made.sleep)
    return made


async def reconcile(calls: Calls, every_seconds: float = 30.0) -> Bootstrap:
    made = Bootstrap(calls, calls, every_seconds)  # type: ignore[arg-type]
    await made.reconcile()
    return made


def expected(*rest: UUID) -> Expected:
    return Expected(
        task_groups=(*rest, LEASED),
        urgent_groups=(LEASED,),
        managers=(HOST, SILENT),
        overdue_managers=(SILENT,),
        runs=(RUN,),
        names=NAMES,
    )


async def test_hosts_come_first_then_groups_with_leases_or_timers_then_the_rest() -> None:
    calls = Calls(expected(OPEN))
    await reconcile(calls)
    assert calls.made == [
        ("poke", "manager", SILENT, None),
        ("start", "manager", HOST, None),
        ("start", "task_group", LEASED, None),
        ("start", "run", RUN, None),
        ("start", "task_group", OPEN, NAMES[OPEN]),
    ]


async def test_only_what_is_missing_is_started_and_a_silent_host_is_poked_all_the_same() -> None:
    subjects: list[tuple[WorkflowKind, UUID]] = [("manager", HOST), ("manager", SILENT)]
    subjects += [("task_group", LEASED), ("task_group", OPEN), ("run", RUN)]
    calls = Calls(expected(OPEN), running=[target(kind, one).id for kind, one in subjects])
    await reconcile(calls)
    assert calls.made == [("poke", "manager", SILENT, None)]


async def test_the_rest_leaves_the_server_a_part_of_its_time(clock: Clock) -> None:
    calls = Calls(Expected(task_groups=tuple(UUID(int=100 + n) for n in range(3 * AT_ONCE))))
    await reconcile(calls)
    # Each few took one second, of SHARE of the time.
    assert clock.pauses == pytest.approx([(1 - SHARE) / SHARE] * 3)
    assert len(calls.made) == 3 * AT_ONCE


async def test_the_rest_ends_after_an_interval_so_that_silent_hosts_are_looked_for_again(
    clock: Clock,
) -> None:
    calls = Calls(Expected(task_groups=tuple(UUID(int=100 + n) for n in range(1000))))
    made = await reconcile(calls, every_seconds=10.0)
    assert AT_ONCE <= len(calls.made) < 10 * AT_ONCE
    assert vars(made)["_asked"].is_set(), "and at once"


async def test_a_server_that_does_not_answer_ends_the_run() -> None:
    calls = Calls(expected(OPEN), fails_at=LEASED)
    with pytest.raises(TemporalUnavailable):
        await reconcile(calls)
    assert calls.made[-1] == ("start", "task_group", LEASED, None)
