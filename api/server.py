"""Runs uvicorn inside an asyncio process, on a socket that is bound here.

It is a context manager, and changes neither signal handlers nor logging. A stop releases long
polls first and gives other requests a few seconds.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from api.bounded_listener import BoundedListener
from api.bounded_protocol import (
    HEAD_SECONDS,
    BoundedProtocol,
    most_connections,
    notice_gone_peers,
)
from api.owner_socket import OwnersProtocol, listening
from mitosis.concurrency import race
from mitosis.contracts.errors import ConfigurationError

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 75
"""More than the clients' 60 s, so that they close first."""

_TURNS_OF_AN_ACCEPT = 4
"""Turns of asyncio's loop from accept(2) to ``connection_made``, and one more."""

TLS_END_SECONDS = 1.0
"""How long a closed connection waits for the peer's end of TLS."""

OWNERS_CONNECTIONS = 200
"""Of the programs of the API's own user, which others cannot use up."""

WS_MAX_BYTES = 64 * 1024
"""Of one message from a client; our clients send none."""


class EmbeddedServer(uvicorn.Server):
    """uvicorn without signal handlers and timer ticks; a stop releases long polls first."""

    handshake_seconds = HEAD_SECONDS

    def __init__(self, config: uvicorn.Config, release: Callable[[], None]) -> None:
        super().__init__(config)
        self._release = release
        self._stop = asyncio.Event()
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the entry point."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn does, and with limits for TLS, which it cannot be given."""
        await super().startup([])
        tls = self.config.ssl
        loop = asyncio.get_running_loop()
        for listener in sockets or []:
            create = loop.create_unix_server if _is_unix(listener) else loop.create_server
            server = await create(
                self._protocol,
                sock=listener,
                ssl=tls,
                backlog=self.config.backlog,
                ssl_handshake_timeout=self.handshake_seconds if tls else None,
                ssl_shutdown_timeout=TLS_END_SECONDS if tls else None,
            )
            self.servers.append(server)
        self.listening.set()

    def _protocol(self) -> asyncio.Protocol:
        kind = cast("type[BoundedProtocol]", self.config.http_protocol_class)
        return kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def main_loop(self) -> None:
        """Wait for :meth:`stop`. There is no date header to refresh, so no timer is needed."""
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._accept_no_more()
        self._release()
        await super().shutdown(sockets)

    async def _accept_no_more(self) -> None:
        """Stop accepting, and let a connection that is half accepted end as a whole one.

        asyncio before Python 3.12 forgets the socket of one that its server is closed under.
        """
        loop = asyncio.get_running_loop()
        for listener in (each for server in self.servers for each in server.sockets):
            loop.remove_reader(listener.fileno())
        for _ in range(_TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)

    def stop(self) -> None:
        self.should_exit = True
        self._stop.set()


@asynccontextmanager
async def serving(
    app: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    release: Callable[[], None] = lambda: None,
    stop_after: timedelta = timedelta(seconds=5),
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Serve ``app`` while the context is open, and yield its URL. Port 0 takes a free one.

    Args:
        app: the application; its lifespan is not run.
        host: address to listen on.
        port: port to listen on.
        release: called when the server stops, so that held requests answer at once.
        stop_after: how long running requests may take to finish before they are cancelled.
        tls: serve https with it; None: plain HTTP.

    Raises:
        ConfigurationError: the address or port cannot be bound.
    """
    most = most_connections()
    most -= min(OWNERS_CONNECTIONS, most // 2)
    listener = _bind(host, port)
    if tls is not None:
        listener = BoundedListener.take(listener, most)
    protocol = _limited(BoundedProtocol, most)
    async with _serving(app, listener, protocol, release, stop_after, tls):
        yield _url(listener, "http" if tls is None else "https")


@asynccontextmanager
async def serving_owner(
    app: ASGIApp,
    path: Path,
    *,
    release: Callable[[], None] = lambda: None,
    stop_after: timedelta = timedelta(seconds=5),
) -> AsyncIterator[None]:
    """Serve ``app`` at a unix socket, to this operating system user and root only.

    The arguments are those of :func:`serving`.

    Raises:
        ConfigurationError: the socket cannot be made.
    """
    protocol = _limited(OwnersProtocol, OWNERS_CONNECTIONS)
    with listening(path) as listener:
        async with _serving(app, listener, protocol, release, stop_after):
            yield


def _limited(protocol: type[BoundedProtocol], most: int) -> type[BoundedProtocol]:
    return type("LimitedProtocol", (protocol,), {"max_connections": most})


@asynccontextmanager
async def _serving(
    app: ASGIApp,
    listener: socket.socket,
    protocol: type[BoundedProtocol],
    release: Callable[[], None],
    stop_after: timedelta,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="websockets-sansio",
        ws_max_size=WS_MAX_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(stop_after.total_seconds()),
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    server = EmbeddedServer(config, release)
    running = asyncio.create_task(server.serve([listener]), name="http server")
    try:
        await race(running, server.listening.wait())
        yield
    finally:
        protocol.max_connections = 0  # for one that is being accepted now; uvicorn would keep it
        server.stop()
        await running


def _is_unix(listener: socket.socket) -> bool:
    return listener.family == socket.AF_UNIX


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror}", host=host, port=port
        ) from error
    # Without TCP_NODELAY an answer in two packets waits 40 ms for the client's delayed acknowledgement.
    # asyncio sets it only on sockets made with an explicit protocol number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    notice_gone_peers(listener)
    return listener


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
