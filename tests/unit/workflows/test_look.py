"""When the look of the control worker signals, and how soon it looks again."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from mitosis.contracts.control import WaitingWork
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from tests.support.skipping_loop import run_skipping
from workflows.client import ControlClient
from workflows.look import Look

HOST = UUID(int=3)
NOTHING, WORK = WaitingWork(), WaitingWork(what="host 1 for task group 2")
OTHER = WaitingWork(what="host 2 for task group 2")


class Script:
    """Answers looks one after the other and notes when; then it ends them. Also takes the pokes."""

    def __init__(self, answers: Sequence[WaitingWork | Exception]) -> None:
        self._answers = list(answers)
        self.times: list[float] = []
        self.pokes: list[tuple[Any, ...]] = []
        self.refuses = False

    async def look(self) -> WaitingWork:
        self.times.append(round(asyncio.get_running_loop().time(), 3))
        if not self._answers:
            raise asyncio.CancelledError
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def poke(self, *subject: object) -> None:
        self.pokes.append(subject)
        if self.refuses:
            raise TemporalUnavailable("no answer")


def run(*answers: WaitingWork | Exception, refuses: bool = False) -> Script:
    script = Script(answers)
    script.refuses = refuses
    with pytest.raises(asyncio.CancelledError):
        run_skipping(Look(cast("ControlClient", script), script).run())
    return script


def test_nothing_is_signalled_while_nothing_waits() -> None:
    script = run(NOTHING, NOTHING, NOTHING)
    assert script.pokes == []
    assert script.times == [5, 10, 15, 20]


def test_waiting_work_signals_the_scheduler_and_the_next_look_comes_soon() -> None:
    script = run(WORK, WaitingWork(offered=(HOST,)), NOTHING)
    assert script.pokes == [("scheduler",), ("manager", HOST)]
    assert script.times == [5, 6.5, 11.5, 16.5]


def test_the_same_work_again_and_again_is_signalled_ever_more_seldom() -> None:
    script = run(*[WORK] * 9)
    pauses = [after - before for before, after in zip(script.times, script.times[1:], strict=False)]
    assert pauses == [1.5, 5, 10, 20, 40, 60, 60, 60, 60]
    assert run(WORK, WORK, OTHER, NOTHING, WORK).times == [5, 6.5, 11.5, 13, 18, 19.5]


@pytest.mark.parametrize("refuses", [False, True])
def test_an_outage_ends_no_look(refuses: bool) -> None:
    first = WORK if refuses else DatabaseUnavailable("no answer")
    script = run(first, WORK, NOTHING, refuses=refuses)
    assert script.times[:2] == [5, 10]
    assert len(script.times) == 4
