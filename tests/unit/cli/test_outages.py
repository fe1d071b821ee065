"""One line per outage, and only of one that lasts."""

import logging

from mitosis.cli.outages import (
    NEW_AFTER_SECONDS,
    REPORT_AFTER_SECONDS,
    Outages,
    announced_outages,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def failing(outages: Outages, clock: Clock, seconds: float, every: float = 0.5) -> None:
    """Tries that fail from now on, for so long."""
    ends = clock.now + seconds
    while clock.now <= ends:
        outages.failed("the API is away")
        clock.now += every


def test_a_try_or_two_that_fail_are_no_outage() -> None:
    said: list[str] = []
    clock = Clock()
    failing(Outages(said.append, clock), clock, REPORT_AFTER_SECONDS / 2)
    assert said == []


def test_an_outage_is_told_once_however_long_it_lasts() -> None:
    said: list[str] = []
    clock = Clock()
    failing(Outages(said.append, clock), clock, 600, every=NEW_AFTER_SECONDS - 1)
    assert said == ["the API is away; waiting, tasks keep running"]


def test_an_outage_after_an_answer_is_told_again_at_once() -> None:
    said: list[str] = []
    clock = Clock()
    outages = Outages(said.append, clock)
    for _ in range(2):
        failing(outages, clock, REPORT_AFTER_SECONDS * 3)
        outages.over()
    assert len(said) == 2


def test_the_next_outage_is_told_again() -> None:
    said: list[str] = []
    clock = Clock()
    outages = Outages(said.append, clock)
    for _ in range(2):
        failing(outages, clock, REPORT_AFTER_SECONDS * 3)
        clock.now += NEW_AFTER_SECONDS + 1
    assert len(said) == 2


def test_calls_of_other_commands_of_the_process_are_not_reported() -> None:
    said: list[str] = []
    clock = Clock()
    outages = Outages(said.append, clock)
    calls = logging.getLogger("mitosis.client.repeating")

    def fail() -> None:
        for _ in range(2):
            calls.info("call.repeated", extra={"detail": "the API is away"})
            clock.now += REPORT_AFTER_SECONDS

    with announced_outages(outages):
        fail()
    outages.over()
    fail()
    assert said == ["the API is away; waiting, tasks keep running"]
