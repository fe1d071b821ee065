"""Holds back claims while the agent's disk is nearly full, so that tasks do not fail for it.

Running tasks continue and are reported: the journal has reserved its space. Claims resume when there is
room again.
"""

import asyncio
import errno
import logging
import shutil
from pathlib import Path

MIN_FREE_BYTES = 64_000_000
LOOK_AGAIN_SECONDS = 1.0

log = logging.getLogger(__name__)


class DiskRoom:
    """The free space of one folder's disk."""

    def __init__(self, folder: Path, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self._folder = folder
        self._least = min_free_bytes
        self._waits = False

    def free_bytes(self) -> int:
        """Return the bytes that this user may still write. Source: statvfs(3), f_bavail."""
        return shutil.disk_usage(self._folder).free

    async def until_there(self) -> None:
        """Wait until there is room; log the start and the end of the wait."""
        if self.free_bytes() >= self._least:
            return
        facts = {"folder": str(self._folder), "needed_bytes": self._least}
        log.error(
            "disk.nearly_full",
            extra={**facts, "free_bytes": self.free_bytes()},
        )
        self._waits = True
        try:
            while self.free_bytes() < self._least:  # noqa: ASYNC110 - the kernel has no event for it
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
        finally:
            self._waits = False
        log.warning("disk.has_room", extra={**facts, "free_bytes": self.free_bytes()})

    def lack(self) -> str | None:
        """Return why nothing is claimed, if it is for this disk."""
        if not self._waits:
            return None
        return (
            f"it claims nothing: the disk of {self._folder} has less than {self._least:,} bytes free"
            " (agent.min_free_bytes)"
        )


def is_full(error: OSError) -> bool:
    """Return whether the error means that a disk or a quota is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
