"""The data folder: one owner at a time, secrets created once, a short run folder for sockets.

Layout below it (everything 0700 or 0600)::

    lock          flock'ed while a stack runs; holds the pid of the holder
    secrets/      one file per secret
    ports.json    ports chosen at the first start and kept
    logs/         one file per part
    postgres/ temporal/ agent/ …   data of the parts
    programs/     copies of programs, only where root needs them (mitosis.embedded.privileges)

Sockets do not live here: a unix socket path is limited to 107 bytes and a data folder may be deep.
"""

import fcntl
import hashlib
import json
import os
import secrets
import socket
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from mitosis.embedded.errors import DataFolderInUse, PortInUse, SocketPathTooLong, UnsafeFolder
from mitosis.embedded.leftovers import remove_agents

SOCKET_PATH_LIMIT_BYTES = 107
"""``sizeof(sun_path)`` less the final NUL. Source: unix(7)."""
PRIVATE_UMASK = 0o077
"""Of the servers. The agent keeps the umask of the user who starts it, for the files of tasks."""


def default_run_dir(data_dir: Path) -> Path:
    """Return a short folder for the sockets of this data folder, the same in every process of a user."""
    digest = hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:10]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        return Path(runtime) / f"mitosis-{digest}"
    return Path("/tmp") / f"mitosis-{os.geteuid()}-{digest}"  # noqa: S108 - checked by own_folder


def own_folder(path: Path, owner: int | None = None) -> Path:
    """Create ``path`` if it is missing, and verify that it is a folder of this user with mode 0700.

    Others may at most enter it (0711), which a server of another user needs. As root, it may belong
    to ``owner``, the user that it was given to.

    Raises:
        UnsafeFolder: it is a link, not a folder, belongs to another user, or cannot be created.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise UnsafeFolder(f"cannot make the folder {path}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFolder(f"{path} is not a folder (a link is not accepted): remove it")
    if found.st_uid not in (os.geteuid(), owner):
        raise UnsafeFolder(
            f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}: "
            "run as that user or choose another folder"
        )
    if found.st_mode & 0o066:
        path.chmod(0o700)
    return path


def socket_path(folder: Path, name: str) -> Path:
    """Return ``folder/name``, checked against the limit of the kernel.

    Raises:
        SocketPathTooLong: names the length and the limit.
    """
    path = folder / name
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_LIMIT_BYTES:
        raise SocketPathTooLong(
            f"the socket path {path} has {size} bytes, the limit is {SOCKET_PATH_LIMIT_BYTES}: "
            "set MITOSIS_RUN_DIR to a shorter folder"
        )
    return path


def free_port(host: str = "127.0.0.1", but: Collection[int] = ()) -> int:
    """Return a free TCP port outside the range of outgoing connections.

    The kernel could give a port of that range to any client, now or before the next start.
    Source: ip(7), ip_local_port_range.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    own = [port for port in range(10_000, 32_768) if not first <= port <= last]
    candidates = [port for port in own or range(first, last + 1) if port not in but]
    tried = (secrets.choice(candidates) for _ in range(100))
    return next(port for port in tried if port_is_free(port, host))


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def write_private(path: Path, content: bytes) -> None:
    """Write a 0600 file atomically: a reader sees the old or the new content."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


class DataFolder:
    """A data folder and its run folder. Only the stack needs :meth:`lock`; reading does not."""

    def __init__(self, path: Path, run_dir: Path | None = None) -> None:
        self.path = own_folder(path)
        self.run = run_dir or default_run_dir(path)
        self._lock: int | None = None

    def lock(self) -> None:
        """Lock the folder for this process until :meth:`release` or its death.

        Raises:
            DataFolderInUse: another process has it; names its pid.
        """
        path = self.path / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise _in_use(self.path, text) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor
        own_folder(self.run)

    def release(self) -> None:
        """Unlock the folder; remove the run folder if no process uses it. Idempotent."""
        if self._lock is not None:
            remove_agents(self.run)
            with suppress(OSError):
                self.run.rmdir()
            os.close(self._lock)
            self._lock = None

    def part(self, name: str) -> Path:
        """Return the folder of one part; create it if it is missing."""
        return own_folder(self.path / name)

    def log(self, name: str) -> Path:
        """Return the log file of one part; create it with mode 0600."""
        path = self.part("logs") / f"{name}.log"
        path.touch(mode=0o600)
        path.chmod(0o600)
        return path

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the secret ``name``; create it on first use in a 0600 file.

        The caller holds the lock if it may be the first.
        """
        path = self.secret_path(name)
        if not path.exists():
            write_private(path, make())
        return path.read_bytes()

    def secret_path(self, name: str) -> Path:
        return self.part("secrets") / name

    def port(self, name: str, wanted: int | None, setting: str) -> int:
        """Return the port of ``name``: the setting, else the one of the last start, else a free one; save it.

        Raises:
            PortInUse: the setting or the port of the last start is taken; names the setting.
        """
        path = self.path / "ports.json"
        known: dict[str, int] = json.loads(path.read_bytes()) if path.exists() else {}
        port = wanted or known.get(name)
        if port is None:
            port = free_port(but=[*known.values()])
        elif not port_is_free(port):
            raise PortInUse(name, port, setting)
        write_private(path, json.dumps(known | {name: port}, indent=1).encode())
        return port


def _in_use(folder: Path, holder: str) -> DataFolderInUse:
    who = f"process {holder}" if holder.isdigit() else "another process"
    return DataFolderInUse(
        f"the data folder {folder} is in use by {who}: "
        "stop that one, or choose another folder with --data-dir or MITOSIS_DATA_DIR",
        folder=str(folder),
        pid=int(holder) if holder.isdigit() else None,
    )


def random_password() -> bytes:
    """Return 192 random bits in the alphabet of URLs."""
    return secrets.token_urlsafe(24).encode()


def ed25519_private_key() -> bytes:
    """Return a new Ed25519 key as PKCS #8 PEM, for signing EdDSA tokens."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
