"""A listening socket with a limit on open connections, for TLS.

uvicorn's protocol counts a connection when its handshake is over. Without a limit before that, peers that
begin no handshake could use up the descriptors of the process.
"""

import logging
import socket
from typing import Any

log = logging.getLogger(__name__)


class BoundedListener(socket.socket):
    """Accepts no more connections than ``most`` at the same time; closes others at once."""

    most = 1 << 30
    open_connections = 0

    @classmethod
    def take(cls, listener: socket.socket, most: int) -> "BoundedListener":
        """Return a listener with the descriptor of ``listener``, which is of no use after that."""
        family, kind, protocol = listener.family, listener.type, listener.proto
        taken = cls(family, kind, protocol, fileno=listener.detach())
        taken.most = most
        return taken

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept as :meth:`socket.socket.accept`.

        Raises:
            ConnectionAbortedError: there are enough; asyncio ignores it.
        """
        plain, address = super().accept()
        if self.open_connections >= self.most:
            plain.close()
            log.warning("connection.refused", extra={"open_connections": self.most})
            raise ConnectionAbortedError
        accepted = _Accepted(plain.family, plain.type, plain.proto, fileno=plain.detach())
        accepted.listener = self
        self.open_connections += 1
        return accepted, address


class _Accepted(socket.socket):
    listener: BoundedListener | None = None

    def close(self) -> None:
        super().close()
        if self.listener is not None:
            self.listener.open_connections -= 1
            self.listener = None
