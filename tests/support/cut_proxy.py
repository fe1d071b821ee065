"""A TCP proxy before an API that plays the bad network: answers for it, or cuts off its answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

CUT = b""
"""Pass the request on, wait for the answer, and drop the connection instead of giving it."""


@dataclass
class CutProxy:
    """``acts`` says what happens to the next requests of ``path``: bytes are the answer, CUT cuts, None
    passes. When they are used up, everything passes.
    """

    target: tuple[str, int]
    path: bytes
    acts: list[bytes | None]
    times: list[float] = field(default_factory=list)
    """When requests of ``path`` came, by the clock of the loop."""
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to = await asyncio.open_connection(*self.target)
        try:
            while (request := await _message(reader)) is not None:
                act = None
                if self.path in request.partition(b"\r\n")[0]:
                    self.times.append(asyncio.get_running_loop().time())
                    act = self.acts.pop(0) if self.acts else None
                if act:
                    writer.write(act)
                    continue
                to.write(request)
                answer = await _message(behind)
                if answer is None or act == CUT:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            for end in (writer, to):
                end.close()


@asynccontextmanager
async def cut_proxy(url: str, path: bytes, *acts: bytes | None) -> AsyncIterator[CutProxy]:
    """A proxy before the API at ``url``, on a port of its own."""
    host, _, port = url.removeprefix("http://").partition(":")
    proxy = CutProxy((host, int(port)), path, list(acts))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await server.wait_closed()


def busy(status: str, retry_after: str) -> bytes:
    """An answer of an API, or of something before it, that is too busy."""
    head = f"HTTP/1.1 {status}\r\nRetry-After: {retry_after}\r\nContent-Length: 0\r\n\r\n"
    return head.encode()


async def _message(reader: asyncio.StreamReader) -> bytes | None:
    """One HTTP message with its body; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return head + await reader.readexactly(int(length or b"0"))
