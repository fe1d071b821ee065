"""The queue of schedules: in turn, each once, and none holds up the others."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from mitosis.contracts.errors import DatabaseUnavailable
from tests.support.waiting import wait_until_async
from workflows import schedule_turns
from workflows.schedule_turns import ScheduleTurns

ONE, OTHER = uuid4(), uuid4()


class Work:
    """What was done, and what becomes of it."""

    def __init__(self, *due: UUID, answers: dict[UUID, list[bool | Exception]]) -> None:
        self.done: list[UUID] = []
        self.looks = 0
        self._due = due
        self._answers = answers

    async def look(self) -> Sequence[UUID]:
        self.looks += 1
        await asyncio.sleep(0)
        return self._due

    async def do(self, schedule: UUID) -> bool:
        self.done.append(schedule)
        answers = self._answers.get(schedule)
        answer = answers.pop(0) if answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


async def until_done(turns: ScheduleTurns, work: Work, times: int) -> None:
    task = asyncio.create_task(turns.run())
    await wait_until_async(lambda: len(work.done) >= times)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_schedule_with_much_to_do_lets_others_go_first() -> None:
    work = Work(ONE, OTHER, ONE, answers={ONE: [True, True]})
    await until_done(ScheduleTurns(work.look, work.do), work, 4)
    assert work.done == [ONE, OTHER, ONE, ONE]


async def test_failures_are_tried_again_and_a_fault_of_one_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule_turns, "AFTER_FAILURE_SECONDS", 0)
    work = Work(answers={ONE: [DatabaseUnavailable(), ValueError("ours")]})
    turns = ScheduleTurns(work.look, work.do)
    turns.ask([ONE, OTHER])
    await until_done(turns, work, 3)
    assert work.done == [ONE, OTHER, ONE]


async def test_a_look_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_turns, "LOOK_AGAIN_SECONDS", 0)
    work = Work(ONE, answers={})
    real, failures = work.look, [ValueError("ours"), DatabaseUnavailable()]

    async def look() -> Sequence[UUID]:
        if failures:
            raise failures.pop()
        return await real()

    await until_done(ScheduleTurns(look, work.do), work, 1)
    assert work.looks == 1


async def test_all_rows_are_looked_at_again_and_again() -> None:
    work = Work(ONE, answers={})
    await until_done(ScheduleTurns(work.look, work.do, every_seconds=0), work, 3)
    assert work.looks >= 3


async def test_what_waits_is_done_while_looks_fail() -> None:
    work = Work(answers={})

    async def look() -> Sequence[UUID]:
        raise DatabaseUnavailable

    turns = ScheduleTurns(look, work.do, every_seconds=0)
    turns.ask([ONE, OTHER])
    await until_done(turns, work, 2)
    assert work.done == [ONE, OTHER]
