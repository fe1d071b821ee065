"""Resolves the children of tasks that have ended, where no API process did (protocol P14).

It needs PostgreSQL only.
"""

import asyncio
import logging

from workflows.ports import DependenciesPort

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How long a task waits at the most when the API that would have freed it has died."""


class Dependencies:
    """Works until it is cancelled."""

    def __init__(self, port: DependenciesPort, look_seconds: float = LOOK_SECONDS) -> None:
        self._port = port
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Look again and again, for ever. Any failure is logged and tried again."""
        while True:
            try:
                await self._port.resolve_dependencies()
            except Exception as error:  # noqa: BLE001 PostgreSQL may be away
                log.warning("dependencies.failed", extra={"reason": str(error)})
            await asyncio.sleep(self._look_seconds)
