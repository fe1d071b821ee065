"""A worker service, the API and PostgreSQL are killed under 40 named tasks: one result for each, in order.

The processes are killed at moments that a seed chooses; ``MITOSIS_CHAOS_SEED`` repeats a run.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from mitosis.contracts.errors import MitosisError
from mitosis.contracts.task import TaskSubmission
from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.postgres import EmbeddedPostgres, running_on
from mitosis.store.pg.migrate import migrate
from tests.support.service_processes import TASK, Process, Scene, scene, stopped
from tests.support.waiting import wait_until_async

TASKS = 40
SLOTS = 2
COMMAND = 'sleep 0.0$(($$ % 9)); echo "$MITOSIS_TASK_ID $$" >>executions; echo $$'
"""Writes down that it was executed; its result is the number of its process."""


@dataclass
class Fleet:
    """What the campaign kills; all of it is started again at once."""

    scene: Scene
    postgres: EmbeddedPostgres
    worker: Process
    killed: Counter[str] = field(default_factory=Counter)

    async def restart_worker(self) -> None:
        self.worker.kill()
        await self.worker.wait()
        self.worker = await start(self.scene)

    async def restart_api(self) -> None:
        await self.scene.close_api()
        await self.scene.open_api()

    async def restart_postgres(self) -> None:
        for pid in running_on(self.postgres.data):
            with suppress(ProcessLookupError):  # it has ended with the first of them
                os.kill(pid, signal.SIGKILL)
        await self.postgres.stop()
        await self.postgres.start()


async def start(it: Scene) -> Process:
    return await it.start_ours(COMMAND, "w-1", "--slots", str(SLOTS))


@asynccontextmanager
async def own_postgres(data_dir: Path) -> AsyncIterator[EmbeddedPostgres]:
    data = DataFolder(data_dir)
    data.lock()
    postgres = EmbeddedPostgres(data, {"fsync": "off"})  # survives a kill, not a power cut
    await postgres.start()
    try:
        await asyncio.to_thread(migrate, postgres.url())
        yield postgres
    finally:
        await postgres.stop()
        data.release()


async def unfinished(it: Scene) -> int:
    """How many tasks have no result; all of them while nothing answers."""
    try:
        return (await it.client.group("work")).tasks_unfinished
    except MitosisError:
        return TASKS


@pytest.mark.spec("S000-56")
@pytest.mark.timeout(240)
async def test_each_task_has_one_result_whatever_is_killed(tmp_path: Path, data_dir: Path) -> None:
    seed = int(os.environ.get("MITOSIS_CHAOS_SEED") or random.randrange(2**32))
    chance = random.Random(seed)
    async with own_postgres(data_dir) as postgres, scene(postgres.url(), tmp_path) as it:
        ids = await it.client.submit("work", [TaskSubmission(named_task=TASK)] * TASKS)
        fleet = Fleet(it, postgres, await start(it))
        try:
            victims = [fleet.restart_worker] * 3 + [fleet.restart_api, fleet.restart_postgres]
            chance.shuffle(victims)
            for place, victim in enumerate(victims, 1):
                left = TASKS - place * TASKS // (len(victims) + 1)
                story = partial(_story, fleet, seed)
                await wait_until_async(partial(_at_most, it, left), 60, story, 0.1)
                fleet.killed[victim.__name__] += 1
                await victim()
            await wait_until_async(partial(_at_most, it, 0), 60, partial(_story, fleet, seed), 0.1)
            results = await it.tasks()
        finally:
            await stopped(fleet.worker)
    executions = [line.split() for line in (tmp_path / "executions").read_text().splitlines()]
    told = _story(fleet, seed)
    assert Counter(one.task_id for one in results) == Counter(ids), told
    assert {one.state for one in results} == {"succeeded"}, told
    known = {(task, number) for task, number in executions}
    for one in results:
        assert (str(one.task_id), str((one.detail or {})["result"])) in known, told
    again = len(executions) - TASKS
    assert 0 <= again <= SLOTS * fleet.killed["restart_worker"], told


async def _at_most(it: Scene, left: int) -> bool:
    return await unfinished(it) <= left


def _story(fleet: Fleet, seed: int) -> str:
    return f"seed {seed}, killed {dict(fleet.killed)}\n{fleet.scene.log()[-3000:]}"
