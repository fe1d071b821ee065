"""Identifies this process, boot and machine.

Owns the incarnation counter (protocol P5). Makes no calls.
"""

import os
import uuid
from pathlib import Path

from mitosis.contracts.errors import ConfigurationError

_INCARNATION = "incarnation"
_MACHINE = "machine-id"


def machine_id(state_dir: Path) -> str:
    """Return ``/etc/machine-id`` (machine-id(5)), or else an id that is kept in the state folder."""
    try:
        if found := Path("/etc/machine-id").read_text().strip():
            return found
    except OSError:
        pass
    own = state_dir / _MACHINE
    if not own.exists():
        write_durably(own, uuid.uuid4().hex.encode())
    return own.read_text().strip()


def boot_id() -> str:
    """Return the id of this boot. Source: proc_sys_kernel(5), random/boot_id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def read_incarnation(state_dir: Path) -> int:
    """Return the incarnation of the last process; 0 before the first.

    Raises:
        ConfigurationError: the file holds no number.
    """
    path = state_dir / _INCARNATION
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
    except ValueError:
        raise ConfigurationError(f"{path} does not hold a number; was it edited?") from None


def raise_incarnation(state_dir: Path, at_least: int = 0) -> int:
    """Return the incarnation of this process; it is on disk before it is used."""
    value = max(read_incarnation(state_dir), at_least) + 1
    keep_incarnation(state_dir, value)
    return value


def keep_incarnation(state_dir: Path, value: int) -> None:
    write_durably(state_dir / _INCARNATION, str(value).encode())


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file so that after a power cut it holds the old or the new content. Mode 0600."""
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
