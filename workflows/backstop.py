"""Repeats what API processes do at once, for what they missed: children of ended tasks (protocol P14), runs
of jobs (P15). It needs PostgreSQL only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from workflows.ports import BackstopPort

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How long something waits at the most when the API that would have done it has died."""


@dataclass(frozen=True, slots=True)
class Backstop:
    """Works until it is cancelled."""

    name: str
    work: Callable[[], Awaitable[None]]
    look_seconds: float = LOOK_SECONDS

    async def run(self) -> None:
        """Do the work again and again, for ever. Any failure is logged and tried again."""
        while True:
            try:
                await self.work()
            except Exception as error:  # noqa: BLE001 PostgreSQL may be away
                log.warning("backstop.failed", extra={"work": self.name, "reason": str(error)})
            await asyncio.sleep(self.look_seconds)


def backstops(port: BackstopPort) -> Sequence[Backstop]:
    """Return the loops of a control worker."""
    return (
        Backstop("dependencies", port.resolve_dependencies),
        Backstop("runs", port.advance_runs),
    )
