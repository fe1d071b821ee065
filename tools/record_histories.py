"""Record the golden histories of tests/histories: ``tools/record_histories.py [scenario …]``.

Every scenario is recorded on each side of each patch, as ``scenario.side.json``; files without a side are
of versions before the patch. Existing files are kept: an old history is the very thing that new code must
replay. Delete a file only when no installation can have such a history any more.
"""

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "histories"
IDENTITY = re.compile(r'"identity": "[^"]*"')
STACK = re.compile(r'"stackTrace": "(?:[^"\\]|\\.)*"')
"""Holds the folders of the machine that records."""
sys.path.insert(0, str(ROOT))


from tests.workflow.scenarios import SCENARIOS  # noqa: E402
from tests.workflow.servers import time_skipping  # noqa: E402
from workflows.earlier import ONLY_STEPS_COUNT  # noqa: E402
from workflows.ensuring import QUIET_HISTORY  # noqa: E402
from workflows.shown_names import SHOWN_NAMES  # noqa: E402

SIDES: Mapping[str, frozenset[str]] = {
    "named": frozenset(),
    "quiet": frozenset({SHOWN_NAMES}),
    "earlier": frozenset({SHOWN_NAMES, QUIET_HISTORY}),
    "first": frozenset({SHOWN_NAMES, QUIET_HISTORY, ONLY_STEPS_COUNT}),
}
"""Side -> the patches that its workflows do not have."""
ONLY: Mapping[str, Sequence[str]] = {
    "named": (
        *("task_group_auto_close", "manager_offer_to_teardown", "manager_lease_timers"),
        *("run_timed_out", "run_cancelled", "run_cancelled_by_temporal", "scheduled_run_started"),
    ),
    "first": ("task_group_refused",),
}
"""Of a side that differs in some scenarios only: these. The first one matters for repeated steps."""

NEWEST: Sequence[str] = (
    "manager_lease_timers",
    "run_timed_out",
    "run_cancelled",
    "run_cancelled_by_temporal",
    "scheduled_run_started",
)
"""On the newest side only: no version that lacks a patch goes these ways."""


async def record(name: str, side: str) -> None:
    path = FOLDER / f"{name}.{side}.json"
    if path.exists():
        print(f"kept      {path.relative_to(ROOT)}")
        return
    async with time_skipping(without=SIDES[side]) as environment:
        handle = await SCENARIOS[name](environment)
        text = (await handle.fetch_history()).to_json()
        text = STACK.sub('"stackTrace": ""', IDENTITY.sub('"identity": "recorder"', text))
        path.write_text(text + "\n")
    print(f"recorded  {path.relative_to(ROOT)}")


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENARIOS:
        for side in SIDES:
            if name in ONLY.get(side, (name,)) and (side == "named" or name not in NEWEST):
                await record(name, side)


if __name__ == "__main__":
    asyncio.run(main())
