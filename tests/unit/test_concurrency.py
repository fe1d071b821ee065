"""Waiting for the first of several, with a limit, and for what was cancelled: who ends and what is raised."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.concurrency import cancel_and_wait, finish_all, race, wait_event, within
from tests.support.examples import examples

LOOPING = settings(max_examples=examples(10))
"""For tests that start an event loop in every example."""


class Broken(Exception):
    """What a racer raises."""


@dataclass
class Racer:
    """Runs for a number of turns of the loop, then returns its name or raises; notes its end."""

    name: str
    turns: int
    raises: bool = False
    turns_to_clean_up: int = 0
    began: bool = False
    ended: bool = False

    async def run(self) -> str:
        self.began = True
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            if self.raises:
                raise Broken(self.name)
            return self.name
        finally:
            try:
                for _ in range(self.turns_to_clean_up):
                    await asyncio.sleep(0)
            finally:
                self.ended = True


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


RACERS = st.lists(
    st.builds(
        Racer,
        name=st.just(""),
        turns=st.integers(0, 4),
        raises=st.booleans(),
        turns_to_clean_up=st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)


@LOOPING
@given(racers=RACERS)
def test_the_first_to_end_wins_and_all_have_ended_then(racers: list[Racer]) -> None:
    for number, racer in enumerate(racers):
        racer.name = str(number)
    lasts = [racer.turns + racer.turns_to_clean_up for racer in racers]
    together = [number for number, last in enumerate(lasts) if last <= min(lasts) + 2]
    """The race sees the end of a task two turns of the loop later."""
    winner = together[0]

    async def program() -> None:
        first, *others = (racer.run() for racer in racers)
        if racers[winner].raises:
            with pytest.raises(Broken, match=str(winner)):
                await race(first, *others)
        else:
            assert await race(first, *others) == ("0" if winner == 0 else None)
        assert all(racer.ended for racer in racers)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(program())


@LOOPING
@given(racers=RACERS, after=st.integers(1, 8), again=st.integers(0, 3))
def test_a_cancelled_race_ends_all_and_stays_cancelled(
    racers: list[Racer], after: int, again: int
) -> None:
    """Whenever the cancellation comes, and although it comes again while the racers clean up."""

    async def program() -> None:
        first, *others = (racer.run() for racer in racers)
        racing = asyncio.ensure_future(race(first, *others))
        for _ in range(after):
            await asyncio.sleep(0)
        cancelled = racing.cancel()
        for _ in range(again):
            await asyncio.sleep(0)
            racing.cancel()
        await asyncio.wait([racing])
        assert racing.cancelled() is cancelled
        if not cancelled:
            racing.exception()
        assert all(racer.ended or not racer.began for racer in racers)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(program())


@LOOPING
@given(racers=RACERS)
def test_a_race_that_is_cancelled_in_every_turn_ends(racers: list[Racer]) -> None:
    """As anyio does until the task has ended."""

    async def program() -> None:
        first, *others = (racer.run() for racer in racers)
        racing = asyncio.ensure_future(race(first, *others))
        await asyncio.sleep(0)
        for _ in range(20):
            racing.cancel()
            await asyncio.sleep(0)
        assert racing.cancelled()
        assert all(racer.ended or not racer.began for racer in racers)

    asyncio.run(program())


async def test_of_two_that_end_together_the_one_that_stands_first_wins() -> None:
    event = asyncio.Event()
    event.set()
    assert await race(event.wait(), Racer("other", 0, raises=True).run()) is True
    with pytest.raises(Broken, match="first"):
        await race(Racer("first", 0, raises=True).run(), event.wait())


async def test_the_error_of_a_loser_is_dropped_and_not_logged() -> None:
    said: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(str(context)))

    async def fails_when_cancelled() -> None:
        try:
            await for_ever()
        finally:
            raise Broken

    assert await race(Racer("winner", 1).run(), fails_when_cancelled()) == "winner"
    assert said == []


async def test_all_are_waited_for_unless_one_fails() -> None:
    slow, event = asyncio.create_task(for_ever()), asyncio.Event()
    quick = asyncio.create_task(event.wait())
    all_of_them = asyncio.create_task(finish_all(slow, quick))
    event.set()
    await quick
    assert not all_of_them.done()
    with pytest.raises(Broken, match="it"):
        await finish_all(slow, asyncio.create_task(Racer("it", 0, raises=True).run()))
    assert not slow.done()
    await cancel_and_wait(slow, all_of_them)


async def test_a_task_of_the_caller_is_left_running() -> None:
    own: asyncio.Task[object] = asyncio.create_task(for_ever())
    assert await race(Racer("winner", 1).run(), own) == "winner"
    assert await race(own, Racer("winner", 1).run()) is None
    assert not own.done()
    own.cancel()
    with pytest.raises(asyncio.CancelledError):  # it is the winner, and this is how it ended
        await race(own, for_ever())


async def test_an_event_is_waited_for_no_longer_than_said() -> None:
    event = asyncio.Event()
    assert await wait_event(event, 0.0) is False
    assert await wait_event(event, 0.01) is False
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait_event(event, 60.0) is True
    assert await wait_event(event, 0.0) is True


async def test_an_event_that_is_set_while_the_wait_ends_is_seen() -> None:
    """The cancelled wait takes a turn of the loop to end; whoever clears the event then would lose it."""

    class SetByCancel(asyncio.Event):
        async def wait(self) -> bool:  # type: ignore[override]
            try:
                return await super().wait()
            except asyncio.CancelledError:
                self.set()
                raise

    assert await wait_event(SetByCancel(), 0.0) is True


@LOOPING
@given(after=st.integers(0, 4), is_set=st.booleans())
def test_a_cancelled_wait_for_an_event_stays_cancelled(after: int, is_set: bool) -> None:
    """Also when the event comes in the same moment: what ``asyncio.wait_for`` forgets."""

    async def program() -> None:
        event = asyncio.Event()
        waiting = asyncio.create_task(wait_event(event, 60.0))
        for _ in range(after):
            await asyncio.sleep(0)
        if is_set:
            event.set()
        assert waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(program())


async def test_what_does_not_end_in_time_has_ended_when_that_is_raised() -> None:
    racer = Racer("slow", 1_000_000, turns_to_clean_up=3)
    with pytest.raises(TimeoutError):
        await within(racer.run(), 0.0)
    assert racer.ended
    assert await within(Racer("quick", 1).run(), 60.0) == "quick"
    with pytest.raises(Broken):
        await within(Racer("", 1, raises=True).run(), 60.0)


async def test_a_task_that_is_cancelled_and_cleans_up_can_still_wait() -> None:
    """``asyncio.timeout`` of Python 3.11.2 cannot: it raises there at once."""
    event, seen = asyncio.Event(), []

    async def cleans_up() -> None:
        try:
            await for_ever()
        finally:
            seen.append(await wait_event(event, 0.01))
            event.set()
            seen.append(await wait_event(event, 60.0))

    task = asyncio.create_task(cleans_up())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert seen == [False, True]


async def test_nothing_to_cancel_is_over_at_once() -> None:
    await cancel_and_wait()
    done = asyncio.create_task(Racer("", 0, raises=True).run())
    await asyncio.wait([done])
    await cancel_and_wait(done)
