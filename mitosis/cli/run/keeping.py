"""Keeps the group of a run open while it reads inputs; the group of a killed run closes automatically.

The group closes :data:`KEEP` after its last submission. A pipe may be silent for longer, so the run
extends this time regularly.
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
"""How long a group stays open without its run: longer than a laptop sleeps or an outage of the API lasts."""


def with_auto_close(spec: TaskGroupSpec) -> TaskGroupSpec:
    """Return the spec with an automatic close after :data:`KEEP`."""
    return spec.model_copy(update={"auto_close_timeout": KEEP})


async def keep_open(client: Client, group: TaskGroupInfo, feeder: Feeder) -> None:
    """Extend the automatic close to :data:`KEEP` from now, regularly until cancelled."""
    while True:
        await asyncio.sleep(KEEP.total_seconds() / 4)
        silent = timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - feeder.last_submitted)
        with suppress(MitosisError):  # the next round tries again
            await client.update_group(
                group.task_group_id, TaskGroupUpdate(auto_close_timeout=silent + KEEP)
            )
