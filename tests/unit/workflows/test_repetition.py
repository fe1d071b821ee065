"""Pauses between repetitions: they grow, start over after a change, and bound how much an hour can cost."""

import pytest

from workflows.repetition import LONGEST_PAUSE_SECONDS, RepeatedLook, RepeatedStep

HOUR = 3600.0
TIMES_AN_HOUR = 22


def pauses(times: int) -> list[float]:
    repeated, now, found = RepeatedStep(), 0.0, []
    for _ in range(times):
        pause = repeated.pause("step", now)
        now += pause
        repeated.executed("step", now)
        found.append(pause)
    return found


def test_pauses_grow_from_a_second_to_minutes() -> None:
    assert pauses(12) == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_time_that_passed_since_counts() -> None:
    repeated = RepeatedStep()
    for at in (0.0, 1.0):
        repeated.executed("step", at)
    assert repeated.pause("step", 2.5) == 0.5
    assert repeated.pause("step", 100.0) == 0.0


def test_another_step_and_a_reset_start_over() -> None:
    repeated = RepeatedStep()
    for at in (0.0, 1.0, 3.0):
        repeated.executed("step", at)
    assert repeated.pause("other", 3.0) == 0.0
    repeated.reset()
    assert repeated.pause("step", 3.0) == 0.0


def test_a_step_that_comes_back_much_later_is_no_repetition() -> None:
    repeated = RepeatedStep()
    for at in (0.0, 1.0, 3.0, 7.0, 7.0 + HOUR):
        repeated.executed("step", at)
    assert repeated.repetitions == 0


def test_an_hour_of_the_same_step_is_few_executions() -> None:
    repeated, now, times = RepeatedStep(), 0.0, 0
    while now < HOUR:
        now += repeated.pause("step", now)
        repeated.executed("step", now)
        times += 1
    assert times <= TIMES_AN_HOUR


@pytest.mark.parametrize("first", [0.05, 10.0, 60.0])
def test_looks_become_rarer_until_there_is_news(first: float) -> None:
    looks = RepeatedLook()
    found = []
    for _ in range(14):
        found.append(looks.seconds("host", first))
        looks.nothing_new("host")
    assert found[0] == first
    assert found == sorted(found)
    assert found[-1] == LONGEST_PAUSE_SECONDS
    assert looks.seconds("another", first) == first
    looks.reset()
    assert looks.seconds("host", first) == first
