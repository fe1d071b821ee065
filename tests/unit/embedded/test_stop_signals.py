"""Which signals stop a program, and who gets them."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from mitosis.embedded.stop_signals import StopSignals, handled_signals

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def hang_up_is_ignored() -> Iterator[None]:
    """As nohup(1) has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_stops_what_does_not_ignore_it() -> None:
    assert handled_signals(ALL) == list(ALL)


@pytest.mark.usefixtures("hang_up_is_ignored")
def test_nohup_is_respected() -> None:
    assert handled_signals(ALL) == [signal.SIGINT, signal.SIGTERM]


def test_who_takes_the_signals_over_gets_them_and_gives_them_back() -> None:
    async def work() -> tuple[list[signal.Signals], bool]:
        taken: list[signal.Signals] = []
        came = asyncio.Event()

        def take(number: signal.Signals) -> None:
            taken.append(number)
            came.set()

        with StopSignals() as signals:
            with signals.given_to(take):
                os.kill(os.getpid(), signal.SIGHUP)
                await came.wait()
            assert not signals.received
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                async with asyncio.timeout(10):
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                return taken, signals.received
        return taken, False

    assert asyncio.run(work()) == ([signal.SIGHUP], True)
