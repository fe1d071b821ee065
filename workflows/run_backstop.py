"""Carries on runs of jobs, where no API process did, and at their timeouts (protocol P15).

It needs PostgreSQL only.
"""

import asyncio
import logging

from workflows.ports import RunsPort

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How long a run waits at the most when the API that would have carried it on has died."""


class RunBackstop:
    """Works until it is cancelled."""

    def __init__(self, port: RunsPort, look_seconds: float = LOOK_SECONDS) -> None:
        self._port = port
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Look again and again, for ever. Any failure is logged and tried again."""
        while True:
            try:
                await self._port.advance_runs()
            except Exception as error:  # noqa: BLE001 PostgreSQL may be away
                log.warning("runs.failed", extra={"reason": str(error)})
            await asyncio.sleep(self._look_seconds)
