"""Does work of schedules, one after the other, beside the relay, which only says which (protocol P17)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from uuid import UUID

from temporalio.service import RPCError

from mitosis.concurrency import raise_if_cancelled, wait_event
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
AFTER_FAILURE_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 5.0
"""After a look that has failed. What waits is done before, also while looks fail."""


class ScheduleTurns:
    """A queue in which a schedule is once. A lost entry is found again: all rows are looked at repeatedly."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Sequence[UUID]]],
        do: Callable[[UUID], Awaitable[bool | None]],
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        """``look`` returns the schedules with something to do; ``do`` whether it has more to do later."""
        self._look = look
        self._do = do
        self._every_seconds = every_seconds
        self._waiting: dict[UUID, None] = {}
        self._asked = asyncio.Event()

    def ask(self, schedules: Iterable[UUID]) -> None:
        """Have these done soon, behind those that wait."""
        self._waiting.update(dict.fromkeys(schedules))
        self._asked.set()

    async def run(self) -> None:
        """Work until it is cancelled. Survives outages of PostgreSQL and of Temporal."""
        clock = asyncio.get_running_loop().time
        next_look = clock()
        while True:
            raise_if_cancelled()
            try:
                if clock() >= next_look:
                    found = await self._looked()
                    next_look = clock() + (self._every_seconds if found else LOOK_AGAIN_SECONDS)
                if self._waiting:
                    await self._one()
                else:
                    await wait_event(self._asked, max(next_look - clock(), 0))
                    self._asked.clear()
            except (TemporalUnavailable, DatabaseUnavailable, RPCError) as error:
                log.warning("schedules.unavailable", extra={"reason": str(error)})
                await asyncio.sleep(AFTER_FAILURE_SECONDS)
            except Exception:  # no fault of ours may end the turns for good
                log.exception("schedules.failed")
                await asyncio.sleep(AFTER_FAILURE_SECONDS)

    async def _looked(self) -> bool:
        """Look which schedules have something to do; return False if that fails: others wait already."""
        try:
            self.ask(await self._look())
        except (TemporalUnavailable, DatabaseUnavailable, RPCError) as error:
            log.warning("schedules.unavailable", extra={"reason": str(error)})
            return False
        except Exception:
            log.exception("schedules.failed")
            return False
        return True

    async def _one(self) -> None:
        schedule_id = next(iter(self._waiting))
        del self._waiting[schedule_id]
        try:
            more = await self._do(schedule_id)
        except (TemporalUnavailable, DatabaseUnavailable, RPCError):
            self.ask([schedule_id])
            raise
        except Exception:  # of this one: others go on, and the next look finds it again
            log.exception("schedules.failed", extra={"schedule_id": str(schedule_id)})
        else:
            if more:
                self.ask([schedule_id])
