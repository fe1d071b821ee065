"""A TCP wire between an agent and the API that a test cuts, holds, or robs of chosen answers.

Requests go through untouched; faults are on the way. HTTP/1.1 without pipelining: a piece from the client
that begins with a method is the head of the next request, and the first piece that comes back belongs to its
answer. By then the API has committed: what happens to that piece happens *between commit and answer*.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

METHODS = (b"GET ", b"POST ", b"PUT ", b"DELETE ")


class Wire:
    """Listens on a port of its own and leads to one address."""

    def __init__(self, target: str) -> None:
        """``target``: URL of the API."""
        where = urlsplit(target)
        assert where.hostname is not None
        assert where.port is not None
        self._target = (where.hostname, where.port)
        self._whole = asyncio.Event()
        self._whole.set()
        self._links: set[asyncio.Task[None]] = set()
        self._port = 0
        self.lose_answers: Counter[str] = Counter()
        """End of a path → how many of the next answers are lost once the API has given them."""
        self.lost: Counter[str] = Counter()
        """What was lost of it."""
        self.answered: Counter[str] = Counter()
        """Path → answers that went through."""
        self._held: dict[str, asyncio.Event] = {}
        self.holding: Counter[str] = Counter()
        """End of a path → answers that wait for :meth:`let_go`."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Nothing gets through any more, in neither direction; nobody is told (a partition)."""
        self._whole.clear()

    def mend(self) -> None:
        """End a partition: what was under way is lost, new connections work."""
        for link in list(self._links):
            link.cancel()
        self._whole.set()

    def hold_answers(self, path_end: str) -> None:
        """Keep the answers of these calls on the way until :meth:`let_go`."""
        self._held[path_end] = asyncio.Event()

    def let_go(self, path_end: str) -> None:
        self._held.pop(path_end).set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            links = list(self._links)
            for link in links:
                link.cancel()
            await asyncio.gather(*links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.get_running_loop().create_task(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        # Also where it was cancelled before its first step.
        link.add_done_callback(lambda _: writer.transport.abort())

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end on either side."""
        far_writer: asyncio.StreamWriter | None = None
        try:
            await self._whole.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            return
        finally:
            if far_writer is None:
                writer.transport.abort()
        call = _Call()
        ways = [
            asyncio.ensure_future(self._forth(reader, far_writer, call)),
            asyncio.ensure_future(self._back(far_reader, writer, call)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for side in (writer, far_writer):
                side.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _forth(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: "_Call"
    ) -> None:
        while piece := await reader.read(65536):
            if piece.startswith(METHODS):
                call.begin(piece.split(b" ", 2)[1].decode().partition("?")[0])
            await self._whole.wait()
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await writer.drain()

    async def _back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: "_Call"
    ) -> None:
        while piece := await reader.read(65536):
            await self._whole.wait()
            if call.answer_begins():
                await self._answer(call.path)
                if self._robbed(call.path):
                    return
                self.answered[call.path] += 1
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await writer.drain()

    async def _answer(self, path: str) -> None:
        for end, event in list(self._held.items()):
            if path.endswith(end):
                self.holding[end] += 1
                await event.wait()

    def _robbed(self, path: str) -> bool:
        for end, count in self.lose_answers.items():
            if count > 0 and path.endswith(end):
                self.lose_answers[end] -= 1
                self.lost[end] += 1
                return True
        return False


class _Call:
    """The request that is under way on one connection."""

    def __init__(self) -> None:
        self.path = ""
        self._waits = False

    def begin(self, path: str) -> None:
        self.path, self._waits = path, True

    def answer_begins(self) -> bool:
        begins, self._waits = self._waits, False
        return begins
