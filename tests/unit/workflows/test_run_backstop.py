"""The loop that carries on the runs that no API process has carried on: any failure is tried again."""

import asyncio
from contextlib import suppress

from mitosis.contracts.errors import DatabaseUnavailable
from workflows.run_backstop import RunBackstop


async def test_a_failure_is_tried_again() -> None:
    looks: list[int] = []

    class Port:
        async def advance_runs(self) -> None:
            looks.append(1)
            if len(looks) == 3:
                raise asyncio.CancelledError
            raise DatabaseUnavailable

    with suppress(asyncio.CancelledError):
        await RunBackstop(Port(), look_seconds=0).run()
    assert len(looks) == 3
