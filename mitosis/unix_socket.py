"""The unix socket of a local API, which programs of its operating system user use without a token.

Its address is ``unix:/absolute/path``. Nothing is sent to a socket of another user: one who guesses the path
after the API has ended must not be taken for it.
"""

import os
import socket
import stat
import struct
from pathlib import Path
from typing import Protocol

from mitosis.contracts.errors import ConfigurationError

SCHEME = "unix:"
HOST = "localhost"
"""In the header ``Host``, which HTTP needs and the API ignores."""
CREDENTIALS = struct.Struct("3i")
"""``struct ucred``: process, user, group. Source: unix(7), SO_PEERCRED."""


class HasOptions(Protocol):
    """A socket, or asyncio's view of one."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def socket_of(url: str) -> Path | None:
    """Return the path in ``unix:/path``; None: the address is another one.

    Raises:
        ConfigurationError: the path is not absolute.
    """
    if not url.startswith(SCHEME):
        return None
    path = Path(url.removeprefix(SCHEME))
    if not path.is_absolute():
        raise ConfigurationError(f"{url!r} is not unix:/absolute/path", field="api.url")
    return path


def peer_user(connected: HasOptions) -> int:
    """Return the effective user id of the process at the other end, as of when it connected or listened."""
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, user, _ = CREDENTIALS.unpack(packed)
    return int(user)


def is_trusted(user: int) -> bool:
    """Return whether this process may act for that user, or the user is root."""
    return user in (os.geteuid(), 0)


def check_folder(path: Path) -> None:
    """Check that only this user and root can have made the socket.

    Raises:
        OSError: another user can; or there is no such folder.
    """
    found = path.parent.lstat()
    if not (stat.S_ISDIR(found.st_mode) and is_trusted(found.st_uid)) or found.st_mode & 0o022:
        raise PermissionError(f"{path.parent} is not a folder of this user alone")


def check_peer(connected: HasOptions) -> None:
    """Check that this user or root serves the socket.

    Raises:
        OSError: another user does.
    """
    user = peer_user(connected)
    if not is_trusted(user):
        raise PermissionError(f"user {user} serves it, not user {os.geteuid()}")
