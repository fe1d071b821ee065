"""Deletes the rows of deleted task groups, chunk by chunk (protocol P8).

It needs PostgreSQL only. After the death of a process, the next one goes on behind its last chunk.
"""

import asyncio
import logging
import time

from mitosis.chunk_size import ChunkSize
from mitosis.concurrency import raise_if_cancelled
from workflows.ports import DeletionPort

log = logging.getLogger(__name__)

CHUNK = 10_000
"""Most rows at once; large results take fewer, and so does a failure: perhaps a statement was too slow."""
LOOK_SECONDS = 5.0
"""How often to look for a group that was deleted since."""


class Deletions:
    """Works until it is cancelled."""

    def __init__(self, port: DeletionPort, look_seconds: float = LOOK_SECONDS) -> None:
        self._port = port
        self._look_seconds = look_seconds
        self._size = ChunkSize(most=CHUNK)

    async def run(self) -> None:
        """Delete what is there, then look again, for ever. Any failure is logged and tried again."""
        while True:
            try:
                while await self._chunk():
                    raise_if_cancelled()
            except Exception as error:  # noqa: BLE001 also a statement that was too slow
                self._size.failed()
                facts = {"reason": str(error), "rows": self._size.rows}
                log.warning("deletions.failed", extra=facts)
            await asyncio.sleep(self._look_seconds)

    async def _chunk(self) -> bool:
        began = time.monotonic()
        more = await self._port.delete_chunk(self._size.rows)
        self._size.took(time.monotonic() - began)
        return more
