"""The unix socket on which the API's own operating system user needs no token.

It is in the run folder, which only that user and root can enter; the user of each connection is checked too.
Calls without a token are made as the stack's administrator: that user owns signing key and database anyway.
"""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from api.bounded_protocol import BoundedProtocol
from mitosis.contracts.errors import ConfigurationError
from mitosis.unix_socket import is_trusted, peer_user

log = logging.getLogger(__name__)

OWNER = "mitosis.owner"
BACKLOG = 128


class OwnersCalls:
    """The application for calls that come over the socket."""

    def __init__(self, app: ASGIApp, owner: UUID) -> None:
        self._app = app
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[OWNER] = self._owner
        await self._app(scope, receive, send)


def owner_of(call: HTTPConnection) -> UUID | None:
    """Return the user for whom a call needs no token; None: it did not come over the socket."""
    return cast("UUID | None", call.scope.get(OWNER))


class OwnersProtocol(BoundedProtocol):
    """The protocol of the API for connections of this user and root; others are closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        try:
            user = peer_user(transport.get_extra_info("socket"))
        except OSError:
            transport.abort()
            raise
        if not is_trusted(user):
            log.warning("connection.foreign_user", extra={"user": user})
            transport.abort()


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listen at ``path`` while the context is open. The caller is the only server of its folder.

    Raises:
        ConfigurationError: the socket cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)  # of a process that was killed
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"cannot listen at {path}: {error.strerror}") from error
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)
