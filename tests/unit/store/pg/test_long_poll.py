"""A long poll ends with its caller, also when the driver of the database has lost the cancellation."""

import asyncio
from contextlib import suppress

from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.wake import Waiter


async def test_a_cancellation_that_a_look_has_lost_ends_the_poll_before_it_waits() -> None:
    looking = asyncio.Event()
    looks = 0

    async def look() -> int:
        nonlocal looks
        looks += 1
        looking.set()
        with suppress(asyncio.CancelledError):  # as psycopg may do
            await asyncio.Event().wait()
        return looks

    poll = asyncio.ensure_future(look_until(Waiter(), lambda _: False, look, seconds=600))
    await looking.wait()
    poll.cancel()
    await asyncio.wait([poll], timeout=10)
    assert poll.cancelled()
    assert looks == 1


async def test_an_answer_that_is_accepted_is_returned_all_the_same() -> None:
    """A claim that was made is not thrown away."""
    looking = asyncio.Event()

    async def look() -> int:
        looking.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 7

    poll = asyncio.ensure_future(look_until(Waiter(), lambda _: True, look, seconds=600))
    await looking.wait()
    poll.cancel()
    assert await poll == 7
