"""The loop that resolves what no API process has resolved: any failure is tried again."""

import asyncio
from contextlib import suppress

from mitosis.contracts.errors import DatabaseUnavailable
from workflows.dependencies import Dependencies


async def test_a_failure_is_tried_again() -> None:
    looks: list[int] = []

    class Port:
        async def resolve_dependencies(self) -> None:
            looks.append(1)
            if len(looks) == 3:
                raise asyncio.CancelledError
            raise DatabaseUnavailable

    with suppress(asyncio.CancelledError):
        await Dependencies(Port(), look_seconds=0).run()
    assert len(looks) == 3
