"""Keeps the group of a run open while its input goes on, and lets it close by itself when the run is killed.

A group closes by itself that long after its last submission. A pipe may be silent for longer while the run
lives, so the run puts the end off, time and again.
"""

import asyncio
import time
from contextlib import suppress
from datetime import timedelta

from mitosis.cli.run.feeding import Feeder
from mitosis.client.client import Client
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec, TaskGroupUpdate

KEEP = timedelta(hours=24)
"""How long a group outlives the last sign of its run: longer than a laptop sleeps, or an API is away."""


def closing_by_itself(spec: TaskGroupSpec) -> TaskGroupSpec:
    """The group as it is made: without any further sign of the run it closes after :data:`KEEP`."""
    return spec.model_copy(update={"auto_close_timeout": KEEP})


async def keep_open(client: Client, group: TaskGroupInfo, feeder: Feeder) -> None:
    """Until cancelled: the group closes :data:`KEEP` after the present moment, not after the last input."""
    while True:
        await asyncio.sleep(KEEP.total_seconds() / 4)
        silent = timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - feeder.last_submitted)
        with suppress(MitosisError):  # it is tried again
            await client.update_group(
                group.task_group_id, TaskGroupUpdate(auto_close_timeout=silent + KEEP)
            )
