"""An agent of a fleet that is started again whenever it dies, as its supervisor does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.fleet import FleetHost


@asynccontextmanager
async def supervised(host: FleetHost) -> AsyncIterator[Path]:
    """Start the agent again whenever it dies; yields the file with its process id."""
    file = host.folder / "pid"

    async def restart() -> None:
        while True:
            if host.process is None or host.process.returncode is not None:
                await host.begin()
                assert host.process is not None
                file.write_text(str(host.process.pid))
            await host.process.wait()

    task = asyncio.create_task(restart())
    try:
        yield file
    finally:
        task.cancel()
