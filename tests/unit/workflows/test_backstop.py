"""The loop that does what no API process has done: any failure is tried again."""

import asyncio
from contextlib import suppress

from mitosis.contracts.errors import DatabaseUnavailable
from workflows.backstop import Backstop


async def test_a_failure_is_tried_again() -> None:
    looks: list[int] = []

    async def work() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise asyncio.CancelledError
        raise DatabaseUnavailable

    with suppress(asyncio.CancelledError):
        await Backstop("runs", work, look_seconds=0).run()
    assert len(looks) == 3
