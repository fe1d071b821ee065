"""`python -m tests.pressure [outage] [--divide N]`: API, PostgreSQL, Temporal away under 120 s tasks.

For 60 s, each alone and all at once, about ten minutes with the times of production.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.pressure.outage import PARTS, Scale, site, survive


async def outage(folder: Path, factor: float) -> None:
    scale = Scale() if factor == 1 else Scale().divided(factor)
    async with site(folder, scale) as one:
        await survive(one, [[part] for part in PARTS] + [list(PARTS)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pressure", description=__doc__)
    parser.add_argument("what", choices=["outage"], nargs="?", default="outage")
    parser.add_argument("--divide", type=float, default=1.0, help="divide every time by this")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mt-pr-"))
    folder.chmod(0o711)  # as root PostgreSQL may run as a system user
    try:
        asyncio.run(outage(folder, options.divide))
    except BaseException:
        print(f"not as it should be; everything is in {folder}", flush=True)
        raise
    shutil.rmtree(folder)
    print("nothing lost, nothing run twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
