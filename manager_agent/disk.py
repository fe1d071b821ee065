"""Room on the disk of the agent: below a limit it claims nothing more, instead of failing tasks.

What runs goes on and is reported; the journal has reserved its space. Claims begin again by themselves
when there is room.
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

    def free_bytes(self) -> int:
        """What a process of this user may still write. Source: statvfs(3), f_bavail."""
        return shutil.disk_usage(self._folder).free

    async def until_there(self) -> None:
        """Wait until there is room; says when waiting begins and when it is over."""
        if self.free_bytes() >= self._least:
            return
        facts = {"folder": str(self._folder), "needed_bytes": self._least}
        log.error(
            "disk.nearly_full",
            extra={**facts, "free_bytes": self.free_bytes()},
        )
        while self.free_bytes() < self._least:  # noqa: ASYNC110 - nobody tells when space is freed
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        log.warning("disk.has_room", extra={**facts, "free_bytes": self.free_bytes()})


def is_full(error: OSError) -> bool:
    """Does the error say that a disk or a quota is used up?"""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
