"""A small HTTP/1.1 client: whole requests and whole answers over kept-alive connections.

It uses an asyncio protocol and the parser of httptools, because a general client costs more than the call
itself (``bench/api_hop.py`` measures both). It talks to one origin, with or without TLS. It has no proxy,
HTTP/2, redirects, streamed bodies or retries. The agent uses it directly, the SDK below httpx2.
"""

import asyncio
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from mitosis.client.trust import refusal, refused_certificate, trusting
from mitosis.concurrency import within
from mitosis.contracts.errors import ConfigurationError
from mitosis.unix_socket import HOST, check_folder, check_peer, socket_of

API_PREFIX = "/api/v1"
KEEP_ALIVE_SECONDS = 60.0
"""Less than the server's, so that no call uses a connection that is being closed."""

Header = tuple[bytes, bytes]


class LinkError(Exception):
    """There is no answer to a call; the call may have had an effect."""


class ConnectFailed(LinkError):
    """The connection cannot be made; the call had no effect."""


class ConnectTimedOut(ConnectFailed):
    """The connection was not made in time."""


class AnswerTimedOut(LinkError):
    """The whole answer did not arrive in time."""


class AnswerBroken(LinkError):
    """The connection ended before the answer did, or the answer is not HTTP."""


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """The address of a server: host, port, whether TLS is used, and the path prefix of every request."""

    host: str
    port: int
    tls: bool = False
    prefix: str = ""
    socket: Path | None = None
    """Connect to this unix socket instead of host and port."""

    @classmethod
    def parse(cls, url: str) -> "HttpAddress":
        """Read ``http(s)://host[:port][/prefix]`` or ``unix:/path``.

        Raises:
            ConfigurationError: the text is not such an address.
        """
        if (path := socket_of(url)) is not None:
            return cls.over(path)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"api.url must be http(s)://host[:port], not {url!r}")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    @classmethod
    def over(cls, path: Path) -> "HttpAddress":
        """Return the address of the server at a unix socket."""
        return cls(HOST, 80, socket=path)

    @property
    def host_header(self) -> str:
        """The value of the header ``Host``."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}"


class HttpRequest(NamedTuple):
    """A whole request. ``headers`` include ``Host`` and, with a body, ``Content-Length``."""

    method: bytes
    target: bytes
    headers: Sequence[Header]
    body: bytes = b""

    def encode(self) -> bytes:
        """Return the bytes to send (RFC 9112, sections 3 and 5)."""
        lines = [b"%s %s HTTP/1.1" % (self.method, self.target)]
        lines += [b"%s: %s" % header for header in self.headers]
        return b"\r\n".join([*lines, b"", self.body])


class HttpAnswer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[Header]
    body: bytes


class HttpLink(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._headers: list[Header] = []
        self._chunks: list[bytes] = []
        self._keeps_alive = True
        self.idle_since = 0.0

    async def exchange(self, request: bytes, seconds: float | None) -> HttpAnswer:
        """Send a whole request and return its whole answer.

        Without an answer, and when cancelled, the connection is closed, so that a late answer is not
        mistaken for the next one.

        Raises:
            AnswerTimedOut: the answer was not complete after ``seconds``.
            AnswerBroken: the connection ended, or the data received is not HTTP.
        """
        if self._transport is None:
            raise AnswerBroken("the connection is closed")
        self._answer = self._loop.create_future()
        self._headers, self._chunks = [], []
        timer = None
        if seconds is not None:
            timer = self._loop.call_later(seconds, self._fail, AnswerTimedOut("no answer in time"))
        self._transport.write(request)
        try:
            answer = await self._answer
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = None
            if timer is not None:
                timer.cancel()
        if not self._keeps_alive:
            self.abort()
        return answer

    @property
    def usable(self) -> bool:
        """Whether the connection is open.

        This polls the socket, because the event loop of a synchronous program does not run between its
        calls. Data on an idle connection means that it was closed.
        """
        if self._transport is None:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def abort(self) -> None:
        """Close the connection without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP and TLS always are
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # an answer without a request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(AnswerBroken(f"the answer is not HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(AnswerBroken(f"the connection ended before the answer: {error or 'closed'}"))

    def _fail(self, error: LinkError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._keeps_alive = (
            self._parser.should_keep_alive()
        )  # known only now, not when the answer ends

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200:  # informational: the answer follows (RFC 9110, section 15.2)
            self._headers, self._chunks = [], []
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(HttpAnswer(status, self._headers, b"".join(self._chunks)))
            self._headers, self._chunks = [], []


class HttpLinks:
    """Up to ``most`` kept-alive connections to one server; each call uses its own."""

    def __init__(
        self,
        address: HttpAddress,
        *,
        most: int,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        ca_file: Path | None = None,
    ) -> None:
        """Make no connection yet.

        ``keep_alive``: seconds after which an idle connection is not used again. ``ca_file``:
        certificates to trust instead of the system's.

        Raises:
            ConfigurationError: ``ca_file`` cannot be used.
        """
        self._address = address
        self._keep_alive = keep_alive
        self._ca_file = ca_file
        self._tls = trusting(ca_file) if address.tls else None
        self._free = asyncio.Semaphore(most)
        self._idle: list[HttpLink] = []

    async def call(
        self,
        request: HttpRequest,
        *,
        connect_seconds: float | None = None,
        answer_seconds: float | None = None,
    ) -> HttpAnswer:
        """Send one request and return its answer.

        Raises:
            LinkError: there is no answer.
        """
        async with self._free:
            link = self._kept() or await self._connected(connect_seconds)
            answer = await link.exchange(request.encode(), answer_seconds)
            link.idle_since = time.monotonic()
            self._idle.append(link)
            return answer

    def close(self) -> None:
        """Close the idle connections; the next call opens one."""
        for link in self._idle:
            link.abort()
        self._idle.clear()

    def _kept(self) -> HttpLink | None:
        """Return the most recently used connection that is still open."""
        now = time.monotonic()
        while self._idle:
            link = self._idle.pop()
            if now - link.idle_since < self._keep_alive and link.usable:
                return link
            link.abort()
        return None

    async def _connected(self, seconds: float | None) -> HttpLink:
        connecting = self._connect()
        try:
            link = await (connecting if seconds is None else within(connecting, seconds))
        except TimeoutError:
            raise ConnectTimedOut("no connection in time") from None
        except OSError as error:
            raise ConnectFailed(self._reason(error)) from error
        return link

    async def _connect(self) -> HttpLink:
        address, loop = self._address, asyncio.get_running_loop()
        if address.socket is None:
            _, link = await loop.create_connection(
                HttpLink, address.host, address.port, ssl=self._tls
            )
            return link
        check_folder(address.socket)
        transport, link = await loop.create_unix_connection(HttpLink, str(address.socket))
        try:
            check_peer(transport.get_extra_info("socket"))
        except OSError:
            link.abort()
            raise
        return link

    def _reason(self, error: OSError) -> str:
        """Return the text of an error; after an untrusted certificate, read the trusted ones again."""
        refused = refused_certificate(error)
        if refused is None:
            return str(error)
        with suppress(ConfigurationError):  # the file is being replaced: the one before holds
            self._tls = trusting(self._ca_file)
        return refusal(f"https://{self._address.host_header}", refused, self._ca_file)
