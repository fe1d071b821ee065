"""The temporary folder of a stack that ends with its command: `mitosis run --up` and `mitosis demo`.

A killed command leaves its folder; the next command with the same prefix removes it. Each command locks a
file in its folder while it lives, so folders in use are recognised.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mitosis.embedded.data_folder import default_run_dir
from mitosis.embedded.leftovers import is_own_folder, try_lock
from mitosis.embedded.postgres import running_on

OWNER = "owner"
"""Locked by the command; its text is the run folder of the stack."""


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Create a folder that exists while the context is open.

    Other users may traverse it: for root, PostgreSQL runs as another user. Folders with the prefix that
    killed commands left are removed first. The stack uses :func:`data_folder` of it.
    """
    sweep(prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = _take(folder)
    try:
        folder.chmod(0o711)
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def data_folder(folder: Path) -> Path:
    """Return the data folder of the stack."""
    return folder / "data"


def sweep(prefix: str) -> None:
    """Remove folders that commands of this user left, if all their processes have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if is_own_folder(folder) and (lock := try_lock(folder / OWNER)) is not None:
            if not running_on(data_folder(folder) / "postgres" / "data"):
                _remove(folder)
            os.close(lock)


def _take(folder: Path) -> int:
    """Create the owner file; it is locked before it appears under its name."""
    scratch = folder / f".{OWNER}"
    descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(descriptor, os.fsencode(default_run_dir(data_folder(folder))))
    scratch.rename(folder / OWNER)
    return descriptor


def _remove(folder: Path) -> None:
    """Remove the folder, the owner file last, so that the next command can find what is left."""
    owner = folder / OWNER
    with suppress(OSError):
        run = Path(os.fsdecode(owner.read_bytes()))
        if run.name.startswith("mitosis-") and is_own_folder(run):
            shutil.rmtree(run, ignore_errors=True)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path != owner:
                path.unlink()
        if list(folder.iterdir()) == [owner]:
            owner.unlink()
            folder.rmdir()
