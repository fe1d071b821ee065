"""Bounds for connections: how long a request may take to arrive, and how many may be open.

Peers that vanish without closing the connection are detected by TCP keep-alive. Limits on requests that
have arrived are in ``api/limits.py`` and ``api/long_polls.py``.
"""

import asyncio
import logging
import resource
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger(__name__)

HEAD_SECONDS = 20.0
"""From the connection, or the first byte of a request, to the end of its headers."""
PAUSE_SECONDS = 20.0
"""The longest pause within a body."""
REQUEST_SECONDS = 120.0
"""From the first byte of a request to its last: 64 MB at 0.5 MB/s."""
UNREAD_SECONDS = 2.0
"""From an answer to the end of a body that nothing will read: the client may still be sending it, and a
connection that is closed at once could lose the answer on its way."""
LOOK_SECONDS = 1.0
GONE_AFTER_SECONDS = 60
"""A peer that acknowledges nothing for this long is gone. Source: tcp(7), TCP_USER_TIMEOUT, TCP_KEEPIDLE."""
KEPT_DESCRIPTORS = 256
"""Descriptors of the process that are not connections of clients."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a limit on how long a request takes to arrive, and on connections."""

    max_connections = 1 << 30
    look_seconds = LOOK_SECONDS
    head_seconds = HEAD_SECONDS
    pause_seconds = PAUSE_SECONDS
    request_seconds = REQUEST_SECONDS
    unread_seconds = UNREAD_SECONDS

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._look: asyncio.TimerHandle | None = None
        self._began = self._last_byte_at = self.loop.time()
        self._answered_at = 0.0
        self._in_head, self._whole = True, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            log.warning("connection.refused", extra={"open_connections": self.max_connections})
            transport.abort()
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._last_byte_at = self.loop.time()
        super().data_received(data)
        if self._whole:
            self._disarm()
        elif self._look is None:
            self._arm()

    def on_message_begin(self) -> None:
        self._began, self._in_head, self._whole = self._last_byte_at, True, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._answered_at = self.loop.time()
        super().on_response_complete()

    def _arm(self) -> None:
        self._look = self.loop.call_later(self.look_seconds, self._check)

    def _disarm(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _check(self) -> None:
        now = self.loop.time()
        if self._in_head:
            late = now - self._began >= self.head_seconds
        elif self.cycle.response_complete:
            late = now - self._answered_at >= self.unread_seconds
        else:
            paused = now - self._last_byte_at >= self.pause_seconds and not self.flow.read_paused
            late = paused or now - self._began >= self.request_seconds
        if not late:
            self._arm()
            return
        self._look = None
        log.warning("connection.too_slow", extra={"client": self.client, "in_head": self._in_head})
        self.transport.abort()


def notice_gone_peers(listener: socket.socket) -> None:
    """Set options that accepted sockets inherit: half-open connections time out."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GONE_AFTER_SECONDS // 2)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, GONE_AFTER_SECONDS // 4)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_AFTER_SECONDS * 1000)


def most_connections() -> int:
    """Raise the limit of open files to its hard limit; return how many of them connections may use.

    Source: setrlimit(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(hard - KEPT_DESCRIPTORS, hard // 2)
