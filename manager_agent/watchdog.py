"""Finds worker processes that do not get on: they never say hello, or do not exit when told to.

Hung *tasks* are not its business (they have deadlines of their own, see ``session.py``).
"""

import asyncio
import time
from collections.abc import Callable

from manager_agent.state import State, Worker
from mitosis.contracts.lifecycle import WorkerState

CHECK_SECONDS = 1.0
HELLO_SECONDS = 60.0
"""An interpreter that is started anew for each worker may have much to import."""
EXIT_SECONDS = 10.0

Where = tuple[int, WorkerState]


async def watch_processes(state: State, kill: Callable[[int, int], None]) -> None:
    """Call ``kill(slot, generation)`` for every process that is stuck. Cancelled at the end."""
    since: dict[int, tuple[Where, float]] = {}
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        for worker in stuck(state, since, time.monotonic()):
            kill(worker.slot, worker.generation)


def stuck(state: State, since: dict[int, tuple[Where, float]], now: float) -> list[Worker]:
    """The workers that are where they were for too long.

    Args:
        state: of the session.
        since: slot → where its process was, and since when; kept up to date here.
        now: monotonic clock.
    """
    found = []
    for worker in state.workers:
        where = (worker.generation, worker.phase)
        before = since.get(worker.slot)
        if before is None or before[0] != where or worker.running is not None:
            since[worker.slot] = (where, now)
        elif now - before[1] > _limit(worker.phase):
            found.append(worker)
    return found


def _limit(phase: WorkerState) -> float:
    match phase:
        case WorkerState.STARTING:
            return HELLO_SECONDS
        case WorkerState.STOPPING:
            return EXIT_SECONDS
        case _:
            return float("inf")
