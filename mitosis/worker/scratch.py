"""The scratch folder of a worker slot: working directory of its tasks, swept after a task left files.

The check costs one ``lstat`` per task: the modification time of the folder changes with its entries
(protocol P12 allows no more per task).
"""

import logging
import os
import shutil
import stat
import time
from pathlib import Path

_log = logging.getLogger(__name__)

_CLOCK_GRAIN_NS = 20_000_000
"""A folder changed twice within one tick of the kernel's coarse clock keeps its modification time."""


class ScratchFolder:
    """Created with mode 0700 when first needed, and again after a task deleted or replaced it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._clean: tuple[int, int] | None = None

    def ensure(self) -> None:
        """Make sure that the folder exists and is empty."""
        if self._clean is None or self._state() != self._clean:
            self._sweep()

    def _state(self) -> tuple[int, int] | None:
        """Return inode and modification time; None unless it is a folder (and no link to one)."""
        try:
            facts = os.lstat(self.path)
        except OSError:
            return None
        return (facts.st_ino, facts.st_mtime_ns) if stat.S_ISDIR(facts.st_mode) else None

    def _sweep(self) -> None:
        if self._state() is None:
            Path(self.path).unlink(missing_ok=True)
            Path(self.path).mkdir(mode=0o700, parents=True)
        os.chmod(self.path, 0o700)  # noqa: PTH101 - the path is a string already
        with os.scandir(self.path) as entries:
            for entry in list(entries):
                _remove(entry)
        state = self._state()
        settled = state is not None and time.time_ns() - state[1] > _CLOCK_GRAIN_NS
        self._clean = state if settled else None


def _remove(entry: os.DirEntry[str]) -> None:
    try:
        if entry.is_dir(follow_symlinks=False):
            _remove_tree(entry.path)
        else:
            os.unlink(entry.path)  # noqa: PTH108 - as above
    except OSError as error:
        _log.warning("scratch.not_swept", extra={"path": entry.path, "error": str(error)})


def _remove_tree(path: str) -> None:
    try:
        shutil.rmtree(path)
    except PermissionError:
        _allow_everything(path)
        shutil.rmtree(path)


def _allow_everything(path: str) -> None:
    """Give the owner all rights on every folder below; links are not followed."""
    Path(path).chmod(0o700)
    for folder, names, _ in os.walk(path):
        for below in (Path(folder, name) for name in names):
            if not below.is_symlink():
                below.chmod(0o700)
