"""Finds stuck worker processes: those that never say hello, or do not exit after a shutdown message.

Hung *tasks* have deadlines of their own (``session.py``).
"""

import asyncio
import time
from collections.abc import Callable

from mitosis.contracts.lifecycle import WorkerState
from mitosis.execution.state import State, Worker

CHECK_SECONDS = 1.0
HELLO_SECONDS = 60.0
"""A worker that is not forked from the zygote imports its handler modules first."""
EXIT_SECONDS = 10.0

Where = tuple[int, WorkerState]


async def watch_processes(state: State, kill: Callable[[int, int], None]) -> None:
    """Call ``kill(slot, generation)`` for every stuck process, until cancelled."""
    since: dict[int, tuple[Where, float]] = {}
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        for worker in stuck(state, since, time.monotonic()):
            kill(worker.slot, worker.generation)


def stuck(state: State, since: dict[int, tuple[Where, float]], now: float) -> list[Worker]:
    """Return the workers that have been in one phase for too long.

    Args:
        state: of the session.
        since: slot → generation and phase of its process, and since when; updated here.
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
