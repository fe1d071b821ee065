"""The scratch folder of a worker slot: working directory of its tasks, swept after a task left files.

The check costs one ``lstat`` per task: the change time of the folder changes with its entries and its mode,
and no program can set it (protocol P12 allows no more per task).
"""

import logging
import os
import shutil
import stat
import time
from pathlib import Path

_log = logging.getLogger(__name__)

_REALTIME_COARSE = 5
"""``CLOCK_REALTIME_COARSE`` of Linux: the clock of change times. ``time`` has no name for it."""
_GRAIN_NS = 20_000_000
"""Two changes that are closer together may leave the same change time."""
_GRAIN_OF_WHOLE_SECONDS_NS = 2_000_000_000
"""The same on a file system that keeps no fractions of seconds."""


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
        """Return inode and change time; None unless it is a folder (and no link to one)."""
        try:
            facts = os.lstat(self.path)
        except OSError:
            return None
        return (facts.st_ino, facts.st_ctime_ns) if stat.S_ISDIR(facts.st_mode) else None

    def _sweep(self) -> None:
        if self._state() is None:
            Path(self.path).unlink(missing_ok=True)
            Path(self.path).mkdir(mode=0o700, parents=True)
        if (
            stat.S_IMODE(os.lstat(self.path).st_mode) != 0o700
        ):  # a needless change would be seen as one
            os.chmod(self.path, 0o700)  # noqa: PTH101 - the path is a string already
        began = _kernel_now()
        with os.scandir(self.path) as entries:
            for entry in list(entries):
                _remove(entry)
        state = self._state()
        self._clean = state if state is not None and _is_settled(state[1], began) else None


def _kernel_now() -> int:
    return time.clock_gettime_ns(_REALTIME_COARSE)


def _is_settled(changed: int, now: int) -> bool:
    """Return whether every change after ``now`` leaves another change time than ``changed``."""
    whole = changed % 1_000_000_000 == 0
    return now - changed > (_GRAIN_OF_WHOLE_SECONDS_NS if whole else _GRAIN_NS)


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
