"""One value that a process keeps between calls. Its users take turns; when one fails, it is forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self


class Kept:
    """A value that only its users understand; None: there is none yet, or it has been forgotten."""

    def __init__(self) -> None:
        self.value: Any = None
        self._turns = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Self]:
        """Wait for the turn of the caller. After an exception it is unknown what the value stands for."""
        async with self._turns:
            try:
                yield self
            except BaseException:
                self.value = None
                raise
