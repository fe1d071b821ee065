"""The folders of one manager on this host, and the lock by which one process owns them."""

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from mitosis.contracts.errors import ConfigurationError, ManagerIdInUse, MitosisError
from mitosis.ipc.endpoints import run_folder, worker_endpoint

LOCK = "lock"


@dataclass(slots=True)
class HostFolders:
    """The locked folders of a manager.

    The run folder holds sockets and what the workers have begun; the state folder holds the journal,
    checkpoints and scratch.
    """

    run_dir: Path
    state_dir: Path
    _locks: list[int]

    @classmethod
    def lock(
        cls, manager_id: str, state_dir: Path, run_parent: Path | None = None
    ) -> "HostFolders":
        """Make both folders private and lock them.

        Raises:
            ManagerIdInUse: another process of this manager runs on this host.
            ConfigurationError: a folder belongs to another user, or its path is too long for a socket.
        """
        folders = cls(run_folder(manager_id, run_parent), state_dir, [])
        worker_endpoint(folders.run_dir)
        try:
            for folder in (folders.run_dir, folders.state_dir):
                folders._locks.append(_locked(folder / LOCK, manager_id))
        except BaseException:
            folders.release()
            raise
        return folders

    @property
    def endpoint(self) -> str:
        return worker_endpoint(self.run_dir)

    @property
    def journal(self) -> Path:
        return self.state_dir / "journal"

    @property
    def checkpoints(self) -> Path:
        return self.state_dir / "environments"

    @property
    def scratch(self) -> Path:
        return self.state_dir / "scratch"

    def release(self, *, keep: bool = False) -> None:
        """Unlock both folders. Idempotent.

        Args:
            keep: leave the run folder, for the next process to see what was begun here.
        """
        if self._locks and not keep:
            shutil.rmtree(self.run_dir, ignore_errors=True)
        for descriptor in self._locks:
            os.close(descriptor)
        self._locks = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release(keep=error is not None and not isinstance(error, MitosisError))


def make_private(folder: Path) -> None:
    """Create a folder of mode 0700, or check that it is one and belongs to this user.

    Raises:
        ConfigurationError: it belongs to another user or others may enter it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ConfigurationError(f"{folder} must be a folder of this user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)


def _locked(path: Path, manager_id: str) -> int:
    """Lock the file, and check that it is still at ``path``: its last holder may have removed it."""
    while True:
        try:
            make_private(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ManagerIdInUse(
                f"another agent of manager {manager_id} runs on this host (it holds {path})"
            ) from None
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
