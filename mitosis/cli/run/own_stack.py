"""The stack that `mitosis run --up` starts for itself: a temporary folder, gone with the run.

A run that is killed leaves its folder; the next one removes it. A file in the folder, locked by the run as
long as it lives, tells which are in use.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from mitosis.cli.whole_stack import WholeStack, whole_stack
from mitosis.embedded.data_folder import default_run_dir
from mitosis.embedded.leftovers import is_own_folder, try_lock
from mitosis.embedded.postgres import running_on
from mitosis.embedded.stop_signals import StopSignals
from mitosis.settings import Settings

PREFIX = "mitosis-run-"
OWNER = "owner"
"""Locked by the run; its text is the run folder of the stack."""


@asynccontextmanager
async def own_stack() -> AsyncIterator[tuple[WholeStack, StopSignals]]:
    """A stack while the context is open, and who hears the signals until all of it is gone.

    Raises:
        MitosisError: it cannot be started.
        KeyboardInterrupt: a signal came that nobody had taken over.
    """
    sweep()
    with StopSignals() as signals, _folder() as folder:
        settings = Settings(data_dir=_data(folder))
        async with whole_stack(settings, signals=signals) as stack:
            yield stack, signals


def sweep() -> None:
    """Remove what runs of this user left whose processes are all gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if is_own_folder(folder) and (lock := try_lock(folder / OWNER)) is not None:
            if not running_on(_data(folder) / "postgres" / "data"):
                _remove(folder)
            os.close(lock)


def _data(folder: Path) -> Path:
    return folder / "data"


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = _take(folder)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _take(folder: Path) -> int:
    """Make the owner's file, which is locked from the first moment at which it can be seen."""
    scratch = folder / f".{OWNER}"
    descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(descriptor, os.fsencode(default_run_dir(_data(folder))))
    scratch.rename(folder / OWNER)
    return descriptor


def _remove(folder: Path) -> None:
    """Everything, the owner's file last: what cannot be removed now is found again."""
    owner = folder / OWNER
    run = Path(os.fsdecode(owner.read_bytes()))
    if run.name.startswith("mitosis-") and is_own_folder(run):
        shutil.rmtree(run, ignore_errors=True)
    shutil.rmtree(_data(folder), ignore_errors=True)
    with suppress(OSError):
        if sorted(path.name for path in folder.iterdir()) == [OWNER]:
            owner.unlink()
            folder.rmdir()
