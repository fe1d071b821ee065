"""HTTP/1.1 over plain TCP with little in between: an httpx2 transport for calls that are all latency.

Written on an asyncio protocol and the parser of httptools, because the general transport costs more
than the call it carries (``bench/api_hop.py`` shows both). One origin; no TLS, proxy, HTTP/2,
redirect or streamed body: where those are wanted, httpx2's own transport is used instead.
"""

import asyncio
import select
import time
from datetime import timedelta

import httptools
import httpx2

Header = tuple[bytes, bytes]


class _Link(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] | None = None
        self._headers: list[Header] = []
        self._chunks: list[bytes] = []
        self._kept_alive = True
        self.idle_since = 0.0

    async def exchange(self, request: bytes) -> httpx2.Response:
        """Send a whole request and read its whole answer."""
        if self._transport is None:
            raise httpx2.WriteError("the connection is closed")
        self._answered = asyncio.get_running_loop().create_future()
        self._headers, self._chunks = [], []
        self._transport.write(request)
        await self._answered
        status = self._parser.get_status_code()
        if not self._kept_alive:
            self.abort()
        return httpx2.Response(status, headers=self._headers, content=b"".join(self._chunks))

    @property
    def usable(self) -> bool:
        """Still open; anything to read while nothing was asked is the end of it."""
        if self._transport is None:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP always is
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(httpx2.RemoteProtocolError(f"this is no HTTP answer: {error}"))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(httpx2.RemoteProtocolError("the connection ended before the answer"))

    def _fail(self, error: httpx2.TransportError) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)

    # --- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._kept_alive = self._parser.should_keep_alive()  # known only now, not at the end

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)


class LeanTransport(httpx2.AsyncBaseTransport):
    """A few kept-alive connections to one host and port."""

    def __init__(self, host: str, port: int, *, connections: int, keep_alive: timedelta) -> None:
        self._host, self._port = host, port
        self._keep_alive = keep_alive.total_seconds()
        self._free = asyncio.Semaphore(connections)
        self._idle: list[_Link] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make one call; the body of ``request`` is in memory.

        Raises:
            httpx2.TransportError: there was no answer, or none in time.
        """
        timeouts = request.extensions.get("timeout", {})
        async with self._free:
            link = self._kept() or await self._connected(timeouts.get("connect"))
            try:
                async with asyncio.timeout(timeouts.get("read")):
                    answer = await link.exchange(_encoded(request))
            except TimeoutError:
                link.abort()
                raise httpx2.ReadTimeout("no answer in time") from None
            except BaseException:  # a call that was given up leaves its answer on the connection
                link.abort()
                raise
            link.idle_since = time.monotonic()
            self._idle.append(link)
            return answer

    async def aclose(self) -> None:
        for link in self._idle:
            link.abort()
        self._idle.clear()

    def _kept(self) -> _Link | None:
        """The connection that was used last, if it is still good."""
        now = time.monotonic()
        while self._idle:
            link = self._idle.pop()
            if link.usable and now - link.idle_since < self._keep_alive:
                return link
            link.abort()
        return None

    async def _connected(self, timeout: float | None) -> _Link:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, link = await loop.create_connection(_Link, self._host, self._port)
        except TimeoutError:
            raise httpx2.ConnectTimeout("no connection in time") from None
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        return link


def _encoded(request: httpx2.Request) -> bytes:
    """RFC 9112, sections 3 and 5: request line, headers, an empty line, the body."""
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % (name, value) for name, value in request.headers.raw]
    return b"\r\n".join([*lines, b"", request.content])
