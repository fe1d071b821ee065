"""Record the golden histories of tests/histories: ``tools/record_histories.py [scenario …]``.

Existing files are kept: an old history is the very thing that new code must replay. Give a scenario by
name to add one; delete a file only when no installation can have such a history any more.
"""

import asyncio
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "histories"
IDENTITY = re.compile(r'"identity": "[^"]*"')
sys.path.insert(0, str(ROOT))

from tests.workflow.scenarios import SCENARIOS  # noqa: E402
from tests.workflow.servers import time_skipping  # noqa: E402


async def record(name: str) -> None:
    path = FOLDER / f"{name}.json"
    if path.exists():
        print(f"kept      {path.relative_to(ROOT)}")
        return
    async with time_skipping() as environment:
        handle = await SCENARIOS[name](environment)
        text = (await handle.fetch_history()).to_json()
        path.write_text(IDENTITY.sub('"identity": "recorder"', text) + "\n")
    print(f"recorded  {path.relative_to(ROOT)}")


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENARIOS:
        await record(name)


if __name__ == "__main__":
    asyncio.run(main())
