"""Plain code gets coroutines run wherever it stands: in a script, in a thread, inside a running loop."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from mitosis.client.loop_thread import LoopThread
from tests.support.waiting import wait_until


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


async def add_up(items: AsyncIterator[int]) -> int:
    return sum([item async for item in items])


def test_in_a_script_and_in_another_thread(loop: LoopThread) -> None:
    got: list[int] = [loop.run(answer())]
    other = threading.Thread(target=lambda: got.append(loop.run(answer())))
    other.start()
    other.join(20)
    assert got == [42, 42]


async def test_inside_a_running_loop_as_in_a_notebook(loop: LoopThread) -> None:
    assert asyncio.get_running_loop() is not loop.loop
    assert loop.run(answer()) == 42


def test_inside_its_own_loop_it_says_so_instead_of_waiting_for_itself(loop: LoopThread) -> None:
    async def nested() -> int:
        return loop.run(answer())

    with pytest.raises(RuntimeError, match="inside its own event loop"):
        loop.run(nested())


def test_items_are_read_in_the_thread_that_calls_and_may_use_the_loop(loop: LoopThread) -> None:
    here = threading.get_ident()
    seen: set[int] = set()

    def items() -> Iterator[int]:
        for number in range(2500):
            seen.add(threading.get_ident())
            yield number
        yield loop.run(answer())

    assert loop.run_fed(items(), add_up) == sum(range(2500)) + 42
    assert seen == {here}


def test_what_a_generator_raises_reaches_the_caller(loop: LoopThread) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        loop.run_fed(broken(), add_up)


def test_nothing_more_is_read_when_nobody_wants_it(loop: LoopThread) -> None:
    read: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            read.append(1)
            yield 1

    async def first(items: AsyncIterator[int]) -> int:
        return await anext(items)

    assert loop.run_fed(endless(), first) == 1
    assert len(read) <= 1000


def test_ctrl_c_ends_the_waiting_and_cancels_what_was_waited_for(loop: LoopThread) -> None:
    """Again and again: it may fall between any two steps of the thread that begins to wait."""
    for _ in range(200):
        press_while_waiting(loop)


def press_while_waiting(loop: LoopThread) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def for_ever() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def press() -> None:
        began.wait(20)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(for_ever())
    pressing.join(20)
    wait_until(cancelled.is_set)
