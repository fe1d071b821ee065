"""Detects that PostgreSQL does not answer because its disk is full, if the disk is on this machine."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from mitosis.contracts.errors import DatabaseUnavailable, MitosisError, StorageFull

FULL_BELOW_BYTES = 20_000_000
"""A segment of PostgreSQL's log has 16 MB; without room for one, PostgreSQL stops."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Folder of the embedded database; None if the database is not ours."""

    folder: Path | None = None

    def explain(self, error: MitosisError) -> MitosisError:
        """Return StorageFull if PostgreSQL's disk is full, otherwise the error."""
        if self.folder is None or not isinstance(error, DatabaseUnavailable | StorageFull):
            return error
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return error
        if free >= FULL_BELOW_BYTES and not isinstance(error, StorageFull):
            return error
        return StorageFull(
            f"the disk of {self.folder} is full ({free // 1_000_000} MB free): free space there;"
            " nothing was stored, and work continues automatically when there is room",
            folder=str(self.folder),
            free_bytes=free,
        )
