"""A program that runs an embedded stack with one more process in it, for tests that kill it.

Usage: ``python run_stack.py DATA_DIR [postgres|temporal …] [waiting]``; the words are parts *not* to
start; ``waiting`` is for something else than the end.
Prints one line of JSON with its addresses when everything is up; ends on SIGINT or SIGTERM.
"""

import asyncio
import json
import sys
from contextlib import suppress
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
    async with EmbeddedStack(settings) as stack:
        await stack.add_process("child", [sys.executable, "-c", _CHILD])
        up = {"database_url": stack.database_url, "temporal_address": stack.temporal_address}
        print(json.dumps(up), flush=True)
        if "waiting" in words:
            await asyncio.Event().wait()
        await stack.until_stopped()


_CHILD = "import signal; signal.pause()"

if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
