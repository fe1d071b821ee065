"""Which starts a worker says, and when."""

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import TaskStarted
from mitosis.worker import start_notice
from mitosis.worker.start_notice import LATE_SECONDS, StartNotice

KEY = AttemptKey(1, 1)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(start_notice, "time", made)
    return made


@pytest.fixture
def said() -> list[TaskStarted]:
    return []


@pytest.fixture
def notice(said: list[TaskStarted], clock: Clock) -> StartNotice:
    return StartNotice(said.append)


def after(notice: StartNotice, *seconds: float) -> StartNotice:
    """Let tasks of these lengths run."""
    for one in seconds:
        notice.begin(KEY, "program", None, at_once=True)
        notice.end(one)
    return notice


@pytest.mark.parametrize("seconds", [(), (1.0,), (0.0001, 0.06)])
def test_a_start_is_said_at_once_unless_the_tasks_before_were_short(
    notice: StartNotice, said: list[TaskStarted], seconds: tuple[float, ...]
) -> None:
    after(notice, *seconds)
    said.clear()
    notice.begin(KEY, "program", None, at_once=False)
    assert said == [TaskStarted(KEY, 100.0)]
    assert notice.due_at() is None


@pytest.mark.parametrize(("overdue", "at_once"), [(5.0, False), (None, True)])
def test_so_is_one_that_the_agent_counts_from(
    notice: StartNotice, said: list[TaskStarted], overdue: float | None, at_once: bool
) -> None:
    after(notice, 0.0001)
    said.clear()
    notice.begin(KEY, "program", overdue, at_once=at_once)
    assert said == [TaskStarted(KEY, 100.0, overdue)]


def test_so_is_one_of_another_program(notice: StartNotice, said: list[TaskStarted]) -> None:
    after(notice, 0.0001)
    said.clear()
    notice.begin(KEY, "another", None, at_once=False)
    assert said == [TaskStarted(KEY, 100.0)]


def test_a_short_task_says_it_only_when_it_is_late(
    notice: StartNotice, said: list[TaskStarted], clock: Clock
) -> None:
    after(notice, 0.0001)
    said.clear()
    notice.begin(KEY, "program", None, at_once=False)
    assert not said
    assert not notice.is_due
    due = notice.due_at()
    assert due is not None
    clock.now = due
    assert notice.is_due
    notice.send()
    assert not notice.is_due
    notice.send()
    assert said == [TaskStarted(KEY, 100.0)], "once, with the time of its start"
    notice.end(LATE_SECONDS)
    notice.begin(KEY, "program", None, at_once=False)
    notice.end(0.0001)
    clock.now += 1
    assert not notice.is_due, "the second was over before"
    assert len(said) == 1
