"""Looks at a campaign from beside, once a second: hosts without work, lengths of histories."""

import contextlib
import threading
import time
from datetime import timedelta

import psycopg
from temporalio.client import Client
from temporalio.service import RPCError

from mitosis.cli.connection import read_connection
from tests.chaos.mixed.facts import Idle
from tests.chaos.mixed.world import World

EVERY_SECONDS = 1.0
HISTORIES_EVERY = 20
"""So many looks at idle hosts to one at histories."""
GAP_NS = 4_000_000_000
"""A span that was not seen for so long has ended."""


class Watch(threading.Thread):
    """Runs from :meth:`start` to :meth:`end`."""

    def __init__(self, world: World) -> None:
        super().__init__(name="watch")
        self._world = world
        self._over = threading.Event()
        self._open: dict[tuple[int, str], Idle] = {}
        self._ended: list[Idle] = []
        self.histories: dict[str, int] = {}
        self.looks = 0

    def run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            with contextlib.suppress(psycopg.Error):
                self._look()
            if self.looks % HISTORIES_EVERY == 0:
                self.measure()

    def end(self) -> tuple[Idle, ...]:
        """Every span in which a group waited beside a usable host."""
        self._over.set()
        self.join()
        return (*self._ended, *self._open.values())

    def _look(self) -> None:
        pairs, now = self._world.database.idle(), time.monotonic_ns()
        self.looks += 1
        for group, host in pairs:
            known = self._open.get((group, host))
            if known is not None and now - known.ended > GAP_NS:
                known = None
            began = now if known is None else known.began
            self._open[group, host] = Idle(group, host, began, now)
        for pair in self._open.keys() - set(pairs):
            self._ended.append(self._open.pop(pair))

    def measure(self) -> None:
        """The longest run of each workflow so far, as far as Temporal answers."""
        with contextlib.suppress(RPCError, RuntimeError, TimeoutError):
            for name, length in self._world.loop.run(_lengths(self._world), 20):
                self.histories[name] = max(length, self.histories.get(name, 0))


async def _lengths(world: World) -> list[tuple[str, int]]:
    where = read_connection(world.data_dir)
    assert where is not None
    client = await Client.connect(where.temporal_address, namespace=where.temporal_namespace)
    listed = client.list_workflows(rpc_timeout=timedelta(seconds=5))
    found = {run.id async for run in listed}
    described = []
    for name in found:
        description = await client.get_workflow_handle(name).describe(
            rpc_timeout=timedelta(seconds=5)
        )
        described.append((name, description.history_length))
    return described
