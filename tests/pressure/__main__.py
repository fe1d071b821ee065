"""`python -m tests.pressure [outage] [--divide N]`: API, PostgreSQL, Temporal away under 120 s tasks.

For 60 s, each alone and all at once, about six minutes with the times of production.
`python -m tests.pressure flood [--minutes N]`: a submitter faster than the fleet.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from tests.pressure.flood import ENVIRONMENT, MARGIN_BYTES, flood
from tests.pressure.outage import PARTS, Scale, site, survive
from tests.support.program import running_up


def flooded(folder: Path, minutes: float) -> None:
    """Prints what was seen; fails when a process has grown."""
    with running_up(folder / "data", more=ENVIRONMENT) as up:
        seen = flood(folder / "data", psutil.Process(up.pid), seconds=60 * minutes)
    print(seen)
    assert all(grown < MARGIN_BYTES for grown in seen.grown_bytes.values())


async def outage(folder: Path, factor: float) -> None:
    scale = Scale() if factor == 1 else Scale().divided(factor)
    async with site(folder, scale) as one:
        await survive(one, [[part] for part in PARTS] + [list(PARTS)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pressure", description=__doc__)
    parser.add_argument("what", choices=["outage", "flood"], nargs="?", default="outage")
    parser.add_argument("--divide", type=float, default=1.0, help="divide every time by this")
    parser.add_argument("--minutes", type=float, default=3.0, help="of the flood")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mt-pr-"))
    folder.chmod(0o711)  # as root PostgreSQL may run as a system user
    try:
        if options.what == "flood":
            flooded(folder, options.minutes)
        else:
            asyncio.run(outage(folder, options.divide))
    except BaseException:
        print(f"not as it should be; everything is in {folder}", flush=True)
        raise
    shutil.rmtree(folder)
    print("nothing lost, nothing run twice, nothing grown")
    return 0


if __name__ == "__main__":
    sys.exit(main())
