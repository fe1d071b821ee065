"""The folder and the names of the sockets of one manager; the folder is named by the manager id alone."""

import hashlib
import os
from pathlib import Path

from mitosis.contracts.errors import ConfigurationError

MAX_SOCKET_PATH_BYTES = 107
"""Usable length of ``sun_path``. Source: unix(7), 108 bytes with the terminating NUL."""


def run_folder(manager_id: str, parent: Path | None = None) -> Path:
    """Return the run folder of a manager; ``parent`` defaults to $XDG_RUNTIME_DIR, else /tmp.

    Its name depends on the manager id and the user alone, so that every process that has the id finds
    the same sockets. Does not create it.
    """
    base = parent or Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")  # noqa: S108 - made 0700 and checked by its creator
    digest = hashlib.sha256(manager_id.encode()).hexdigest()[:16]
    return base / f"mitosis-{os.getuid()}-{digest}"


def worker_identity(slot: int, generation: int) -> bytes:
    """Return the name of a worker process on the agent's ROUTER; no other process ever has it."""
    return f"{slot}:{generation}".encode()


def last_words_identity(slot: int, generation: int) -> bytes:
    """Return the name under which this process connects again, if a task has closed its socket."""
    return worker_identity(slot, generation) + b":last"


def worker_endpoint(folder: Path) -> str:
    """Return the ZeroMQ endpoint of the agent's ROUTER.

    Raises:
        ConfigurationError: the path would be longer than a socket path may be.
    """
    path = folder / "workers"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise ConfigurationError(
            f"the socket path {path} is longer than {MAX_SOCKET_PATH_BYTES} bytes; "
            "set MITOSIS_RUN_DIR to a shorter folder"
        )
    return f"ipc://{path}"
