"""Passes the whole output of tasks to the API, in order, and acknowledges it to the workers.

Workers have a bounded part on the way, so the queue is bounded. While the reader is behind, the API keeps
nothing and the same pieces are sent again; the tasks wait. Output that nothing reads, or that cannot be sent
for ``UNREACHED_SECONDS``, is dropped, and the task goes on.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from mitosis.contracts.errors import MitosisError
from mitosis.contracts.wire import OutputChunk, WriteOutput, WriteOutputAnswer
from mitosis.execution.port import SessionApi
from mitosis.ipc.messages import OutputTaken, TaskOutput

BATCH_PIECES = 8
PAUSE_SECONDS = 0.1
UNREACHED_SECONDS = 10.0

log = logging.getLogger(__name__)

_Piece = tuple[int, int, TaskOutput]
"""Slot and generation of the worker, and what it sent."""


class WholeOutput:
    """The whole output of the tasks of one lease session."""

    def __init__(
        self, epoch: int, api: SessionApi, send: Callable[[int, int, OutputTaken], object]
    ) -> None:
        """``send`` takes the slot and generation of a worker, and the message for it."""
        self._epoch = epoch
        self._api = api
        self._send = send
        self._queue: deque[_Piece] = deque()
        self._more = asyncio.Event()

    def wrote(self, slot: int, generation: int, output: TaskOutput) -> None:
        """Queue a piece that a worker has sent."""
        self._queue.append((slot, generation, output))
        self._more.set()

    async def deliver(self) -> None:
        """Send queued pieces to the API until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._queue:
                count = min(BATCH_PIECES, len(self._queue))
                pieces = [self._queue.popleft() for _ in range(count)]
                unread = await self._kept(pieces)
                for slot, generation, output in pieces:
                    dropped = output.key.task_id in unread
                    self._answer(slot, generation, output, dropped=dropped)

    async def _kept(self, pieces: Sequence[_Piece]) -> Collection[int]:
        """Send pieces until the API keeps them; return the tasks whose pieces are dropped."""
        request = WriteOutput(
            epoch=self._epoch, chunks=[_chunk(output) for _, _, output in pieces], whole=True
        )
        give_up_at = time.monotonic() + UNREACHED_SECONDS
        while True:
            try:
                answer: WriteOutputAnswer = await self._api.output(request)
            except MitosisError as error:
                if not error.retryable or time.monotonic() >= give_up_at:
                    log.info("output.dropped", extra={"reason": error.message})
                    return {output.key.task_id for _, _, output in pieces}
            else:
                if not answer.full:
                    return answer.unread
                give_up_at = time.monotonic() + UNREACHED_SECONDS
                for slot, generation, output in pieces:  # the reader lives, so the worker waits
                    self._send(slot, generation, OutputTaken(output.key, output.stream, 0))
            await asyncio.sleep(PAUSE_SECONDS)

    def _answer(self, slot: int, generation: int, output: TaskOutput, *, dropped: bool) -> None:
        position = output.offset + len(output.data)
        self._send(
            slot, generation, OutputTaken(output.key, output.stream, position, dropped=dropped)
        )


def _chunk(output: TaskOutput) -> OutputChunk:
    return OutputChunk(
        task_id=output.key.task_id,
        attempt=output.key.attempt,
        stream="stdout" if output.stream == "stdout" else "stderr",
        offset=output.offset,
        data=output.data,
    )
