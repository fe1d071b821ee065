"""What Temporal's details say of task groups that wait: the lines of `explain`, for one control process.

The smallest change costs up to 100 decisions, and many task groups may be shown at once, so it is looked for
in a share of the time.
"""

import asyncio
import time
from uuid import UUID

from mitosis.store.groups.explain import waiting_chain
from mitosis.store.store import Store

SHARE = 10
"""The smallest changes take this part of the time at most."""
LONGEST_PAUSE_SECONDS = 2.0
"""A task group waits so long for its turn; then it is shown without the smallest change."""


class WaitingChains:
    """The lines, and when the next smallest change may be looked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_at = 0.0
        self._takes = 0.0
        """Seconds that the last one took."""

    async def chain(self, task_group_id: UUID) -> tuple[str, ...]:
        """Return what keeps each host from a task group; empty: it does not wait."""
        pause = self.turn(time.monotonic())
        if pause is None:
            return await waiting_chain(self._store, task_group_id, changes=False)
        await asyncio.sleep(pause)
        began = time.monotonic()
        lines = await waiting_chain(self._store, task_group_id, changes=True)
        self._takes = time.monotonic() - began
        return lines

    def turn(self, now: float) -> float | None:
        """Return the pause before the next smallest change, and reserve it; None: it is too long."""
        at = max(now, self._next_at)
        if at - now > LONGEST_PAUSE_SECONDS:
            return None
        self._next_at = at + SHARE * self._takes
        return at - now
