"""A control plane as a process: ``python -m tests.support.run_control``, its addresses as JSON on stdin.

Prints ``ready`` when its worker polls. It is there to be killed.
"""

import asyncio
import json
import sys

from tests.support.control_plane import ControlPlane, open_stores


async def main() -> None:
    given = json.load(sys.stdin)
    async with open_stores(given["database"]) as stores:
        plane = ControlPlane(given["address"], given["namespace"], stores)
        await plane.start(bootstrap_every_seconds=1)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
