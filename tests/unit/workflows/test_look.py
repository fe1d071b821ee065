"""When the look of the control worker signals, and how soon it looks again."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.control import WaitingWork
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from tests.support.skipping_loop import run_skipping
from workflows.client import ControlClient
from workflows.look import Look

HOST, GROUP = UUID(int=3), UUID(int=4)
LINE = "host 1 for task group 2"
NOTHING, WORK = WaitingWork(), WaitingWork(what=(LINE,), last_epoch=7)
OFFER = WaitingWork(offered={8: HOST})
LOOKS_PER_HOUR = 720


class Script:
    """Answers looks one after the other and notes when; then it ends them. Also takes the pokes."""

    def __init__(self, answers: Sequence[WaitingWork | Exception]) -> None:
        self._answers = list(answers)
        self.times: list[float] = []
        self.pokes: list[tuple[Any, ...]] = []
        self.refuses = 0

    async def look(self) -> WaitingWork:
        self.times.append(self.now())
        if not self._answers:
            raise asyncio.CancelledError
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def poke(self, *subject: object) -> None:
        self.pokes.append((self.now(), *subject))
        if self.refuses:
            self.refuses -= 1
            raise TemporalUnavailable("no answer")

    def now(self) -> float:
        return round(asyncio.get_running_loop().time(), 3)


def run(*answers: WaitingWork | Exception, refuses: int = 0) -> Script:
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
    script = run(WORK, WORK, OFFER, NOTHING)
    assert script.pokes == [(6.5, "scheduler"), (8, "manager", HOST)]
    assert script.times == [5, 6.5, 8, 13, 18]


def test_a_group_to_end_is_signalled_at_once_and_then_ever_more_seldom() -> None:
    found = WaitingWork(groups=(GROUP,))
    assert run(*[found] * 4).pokes == [(at, "task_group", GROUP) for at in (5, 10, 20)]


def test_what_is_found_only_once_was_on_its_way() -> None:
    assert run(WORK, NOTHING, WORK, OFFER.model_copy(update={"offered": {}})).pokes == []


@pytest.mark.parametrize("found", [WORK, OFFER], ids=["work", "offer"])
def test_what_is_found_unchanged_is_signalled_ever_more_seldom(found: WaitingWork) -> None:
    script = run(*[found] * LOOKS_PER_HOUR)
    signals = [poke[0] for poke in script.pokes]
    pauses = [after - before for before, after in pairwise(signals)]
    assert 5 <= pauses[0] <= 6.5, "the first may have met a transaction that was under way"
    assert signals[0] <= 6.5
    assert all(before <= after + 5 for before, after in pairwise(pauses))
    assert 300 <= max(pauses) <= 305
    assert len(signals) < 20
    looks = [after - before for before, after in pairwise(script.times)]
    assert max(looks) == 5, "looks go on: a change is found in time"


CHANGED = {
    "another host": WORK.model_copy(update={"what": ("host 2 for task group 2",)}),
    "one host more": WORK.model_copy(update={"what": (LINE, "host 2 for task group 3")}),
    "the same after a lease": WORK.model_copy(update={"last_epoch": 8}),
    "an offer": WORK.model_copy(update={"offered": {8: HOST}}),
    "another offer to the same host": WaitingWork(offered={9: HOST}),
}


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED.keys())
@pytest.mark.parametrize("before", [30, 200, LOOKS_PER_HOUR])
def test_a_change_is_signalled_in_time_however_long_nothing_has_changed(
    changed: WaitingWork, before: int
) -> None:
    same = OFFER if not changed.what else WORK
    script = run(*[same] * before, changed, changed)
    *_, before_it, _, _, _ = script.times
    signals = [poke[0] for poke in script.pokes if poke[0] > before_it]
    assert signals[0] <= before_it + 6.5


FOUND = st.builds(
    WaitingWork,
    what=st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(tuple),
    last_epoch=st.integers(0, 2),
)


@given(st.lists(st.tuples(FOUND, st.integers(1, 90)), min_size=1, max_size=6))
def test_signals_are_bounded_by_changes_and_no_change_waits(
    answers: list[tuple[WaitingWork, int]],
) -> None:
    script = run(*[found for found, times in answers for _ in range(times)])
    changes = 1 + sum((before[0] != after[0]) for before, after in pairwise(answers))
    assert len(script.pokes) <= 12 * changes
    signals = {poke[0] for poke in script.pokes}
    looks = iter(script.times)
    seen: set[tuple[str, int]] = set()
    for found, times in answers:
        things = {(line, found.last_epoch) for line in found.what}
        when = [next(looks) for _ in range(times)]
        assert signals & set(when[:2]) or things <= seen or times == 1
        seen = things


@pytest.mark.parametrize("refuses", [0, 1, 3])
def test_an_outage_ends_no_look_and_an_unaccepted_signal_stays_due(refuses: int) -> None:
    first = WORK if refuses else DatabaseUnavailable("no answer")
    script = run(first, *[WORK] * 5, refuses=refuses)
    began = 5 if refuses else 10
    assert [poke[0] for poke in script.pokes][: refuses + 1] == [
        began + 1.5 + 5 * n for n in range(refuses + 1)
    ]


def test_a_host_is_signalled_when_its_situation_lasts_and_when_it_has_none_any_more() -> None:
    waits, other = WaitingWork(idle_hosts={HOST: 7}), WaitingWork(idle_hosts={HOST: 8})
    script = run(waits, waits, waits, NOTHING, NOTHING, NOTHING, NOTHING)
    assert script.pokes == [(10, "manager", HOST), (25, "manager", HOST)]
    short = run(waits, other, NOTHING, NOTHING, NOTHING)
    assert short.pokes == [(20, "manager", HOST)], "its details may have been written before a look"
