"""What the SDK does beside a program ends without a word, however the program ends."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

from mitosis.client.background import background
from mitosis.concurrency import cancel_and_wait


def said_by(program: Coroutine[Any, Any, None]) -> list[str]:
    """What asyncio has to say of a program whose event loop is closed at once."""
    said: list[str] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: said.append(context["message"]))
    loop.run_until_complete(program)
    loop.close()
    gc.collect()
    return said


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def broken() -> None:
    raise LookupError


def test_a_loop_that_is_closed_under_it_is_not_told() -> None:
    async def leaves_it() -> None:
        left = background(for_ever())
        await asyncio.sleep(0)
        del left

    async def leaves_another() -> None:
        left = asyncio.create_task(for_ever())
        await asyncio.sleep(0)
        del left

    assert said_by(leaves_it()) == []
    assert said_by(leaves_another()) == ["Task was destroyed but it is pending!"]


def test_how_it_ended_is_always_looked_at() -> None:
    async def ends_it() -> None:
        for work in (broken, for_ever):
            task = background(work())
            await asyncio.sleep(0)
            await cancel_and_wait(task)

    assert said_by(ends_it()) == []
