"""A program that runs an embedded stack with one more process in it, for tests that kill it.

Usage: ``python run_stack.py DATA_DIR [postgres|temporal …] [waiting]``; the words are parts *not* to
start; ``waiting`` is for something else than the end; ``within=SECONDS`` is the deadline of the stop,
``jammed`` a part in this process that never ends.
Prints one line of JSON with its addresses when everything is up; ends on SIGINT or SIGTERM.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pydantic import SecretStr

from mitosis.embedded.stack import EmbeddedStack
from mitosis.settings import DatabaseSettings, Settings, TemporalSettings


async def main(data_dir: str, *words: str) -> None:
    database = DatabaseSettings(url=SecretStr("postgresql://elsewhere/x"))
    settings = Settings(
        data_dir=Path(data_dir),
        database=database if "postgres" in words else DatabaseSettings(),
        temporal=TemporalSettings(address="elsewhere:1" if "temporal" in words else None),
    )
    bounded = [float(word.removeprefix("within=")) for word in words if word.startswith("within=")]
    async with EmbeddedStack(settings, stop_within=bounded[0] if bounded else None) as stack:
        if "jammed" in words:
            await stack.add_service("jammed", jammed())
        await stack.add_process("child", [sys.executable, "-c", _CHILD])
        up = {"database_url": stack.database_url, "temporal_address": stack.temporal_address}
        print(json.dumps(up), flush=True)
        if "waiting" in words:
            await asyncio.Event().wait()
        await stack.until_stopped()


@asynccontextmanager
async def jammed() -> AsyncIterator[None]:
    """A part with a thread that never ends, as a workflow task in an endless loop."""
    thread = asyncio.create_task(asyncio.to_thread(time.sleep, 1000))
    try:
        yield
    finally:
        while not thread.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(thread)


_CHILD = "import signal; signal.pause()"

if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
