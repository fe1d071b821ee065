"""Sends live output of running tasks to the API while they have followers.

Once a task has run for a second, one long poll (protocol P7) asks the API for followers of the task group.
Workers send output only for these. Memory is bounded, output that cannot be sent is dropped, and no task
depends on it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import count

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.wire import Followed, LeaseStanding, OutputChunk, WriteOutput
from mitosis.execution.backoff import until_reached
from mitosis.execution.port import SessionApi
from mitosis.execution.state import State
from mitosis.execution.whole_output import WholeOutput
from mitosis.ipc.messages import FollowOutput, OutputTaken, TaskOutput

ASK_AFTER_SECONDS = 1.0
"""Shorter tasks end before a user can follow them."""
HELD_SECONDS = 50.0
PACE_SECONDS = 0.1
PAUSE_SECONDS = 1.0
"""After a refusal."""
PIECE_BYTES = 65_536
"""Kept of each stream of an attempt while a request is under way."""
BATCH_BYTES = 1_000_000

Send = Callable[[int, int, FollowOutput | OutputTaken], object]

log = logging.getLogger(__name__)


class Pieces:
    """The newest output of each followed stream. The offset shows that older bytes were dropped."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[AttemptKey, str], tuple[int, bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, output: TaskOutput) -> None:
        key = (output.key, output.stream)
        offset, data = self._pieces.get(key, (output.offset, b""))
        if offset + len(data) != output.offset:
            offset, data = output.offset, b""
        data += output.data
        surplus = max(0, len(data) - PIECE_BYTES)
        self._pieces[key] = (offset + surplus, data[surplus:])

    def take(self) -> Sequence[OutputChunk]:
        """Remove and return the output for one request, oldest stream first."""
        chunks: list[OutputChunk] = []
        room = BATCH_BYTES
        for key in list(self._pieces):
            offset, data = self._pieces[key]
            if chunks and len(data) > room:
                break
            del self._pieces[key]
            room -= len(data)
            attempt, stream = key
            chunks.append(
                OutputChunk(
                    task_id=attempt.task_id,
                    attempt=attempt.attempt,
                    stream="stdout" if stream == "stdout" else "stderr",
                    offset=offset,
                    data=data,
                )
            )
        return chunks


class OutputFollower:
    """Sends the followed output of one lease session."""

    def __init__(self, epoch: int, state: State, api: SessionApi, send: Send) -> None:
        """``send`` takes the slot and generation of a worker, and the message for it."""
        self._epoch = epoch
        self._state = state
        self._api = api
        self._send = send
        self._tasks: frozenset[int] = frozenset()
        self._everything = False
        self._sending: dict[AttemptKey, tuple[int, int]] = {}
        self._message_ids = count(1)
        self._pieces = Pieces()
        self._more = asyncio.Event()
        self.whole = WholeOutput(epoch, api, send)

    def started(self, slot: int, generation: int, key: AttemptKey) -> None:
        """Record that an attempt has started."""
        if self._everything or key.task_id in self._tasks:
            self._order(slot, generation, key, on=True)

    def wrote(self, slot: int, generation: int, output: TaskOutput) -> None:
        """Queue output that a worker has sent."""
        if output.whole:
            self.whole.wrote(slot, generation, output)
            return
        self._pieces.add(output)
        self._more.set()

    async def ask(self) -> None:
        """Ask the API for followers repeatedly until the lease is gone."""
        while True:
            while not (self._tasks or self._everything or self._something_runs_long()):  # noqa: ASYNC110
                await asyncio.sleep(ASK_AFTER_SECONDS)
            try:
                known = Followed(
                    epoch=self._epoch,
                    tasks=sorted(self._tasks),
                    everything=self._everything,
                    wait_seconds=HELD_SECONDS,
                )
                answer = await until_reached(lambda: self._api.followed(known))  # noqa: B023 - awaited here
            except MitosisError as error:
                log.info("followers.unknown", extra={"reason": error.message})
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if answer.standing is LeaseStanding.GONE:
                return
            self._tasks, self._everything = frozenset(answer.tasks), answer.everything
            self._update_workers()

    async def deliver(self) -> None:
        """Send queued output to the API, at most ten times a second."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._pieces:
                request = WriteOutput(epoch=self._epoch, chunks=list(self._pieces.take()))
                try:
                    await until_reached(lambda: self._api.output(request))  # noqa: B023 - awaited here
                except MitosisError as error:
                    log.info("output.dropped", extra={"reason": error.message})
                    await asyncio.sleep(PAUSE_SECONDS)
                await asyncio.sleep(PACE_SECONDS)

    def _something_runs_long(self) -> bool:
        return bool(self._state.started_before(time.time() - ASK_AFTER_SECONDS))

    def _update_workers(self) -> None:
        """Make the workers send the output that is followed now, and no other."""
        running = {
            worker.running: (worker.slot, worker.generation)
            for worker in self._state.workers
            if worker.running is not None
        }
        self._sending = {key: place for key, place in self._sending.items() if key in running}
        for key, (slot, generation) in running.items():
            wanted = self._everything or key.task_id in self._tasks
            if wanted != (key in self._sending):
                self._order(slot, generation, key, on=wanted)

    def _order(self, slot: int, generation: int, key: AttemptKey, *, on: bool) -> None:
        order = FollowOutput(next(self._message_ids), key, on)
        self._send(slot, generation, order)
        if on:
            self._sending[key] = (slot, generation)
        else:
            self._sending.pop(key, None)
