"""A wire that also answers for the API: what a proxy in between does when it refuses a call."""

import asyncio
import contextlib
import re
from collections import Counter
from dataclasses import dataclass

from tests.support.wire import METHODS, Wire

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
Piece = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to some calls, which never get to the API."""

    path_end: str
    status: str
    """As in ``503 Service Unavailable``."""
    from_bytes: int = 0
    """Only calls with a body of so many bytes or more."""


class RefusingWire(Wire):
    """Refuses while :attr:`refusal` is set."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.refusal: Refusal | None = None
        self.cuts = 0
        """How many want it cut."""
        self.refused: Counter[str] = Counter()
        """Status → calls."""

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """As the wire's, after what is refused at the begin of the connection, or later."""
        filtered = asyncio.StreamReader(limit=2**20)
        filtering = asyncio.ensure_future(self._filter(reader, filtered, writer))
        try:
            await super()._link(filtered, writer)
        finally:
            filtering.cancel()
            await asyncio.gather(filtering, return_exceptions=True)

    async def _filter(
        self,
        reader: asyncio.StreamReader,
        passed: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                refusal = self._refusal_of(piece)
                if refusal is None:
                    passed.feed_data(piece)
                    continue
                await _rest(reader, piece)
                self.refused[refusal.status] += 1
                head = (
                    f"HTTP/1.1 {refusal.status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode())
                await writer.drain()
                break
        passed.feed_eof()

    def _refusal_of(self, piece: bytes) -> Refusal | None:
        refusal = self.refusal
        if refusal is None or not piece.startswith(METHODS):
            return None
        path = piece.split(b" ", 2)[1].decode().partition("?")[0]
        large = _length(piece) >= refusal.from_bytes
        return refusal if path.endswith(refusal.path_end) and large else None


def _length(piece: bytes) -> int:
    found = LENGTH.search(piece)
    return int(found[1]) if found else 0


async def _rest(reader: asyncio.StreamReader, piece: bytes) -> None:
    """Read the body of a refused call to its end."""
    head, _, begun = piece.partition(b"\r\n\r\n")
    missing = _length(head + b"\r\n") - len(begun)
    while missing > 0 and (more := await reader.read(65536)):
        missing -= len(more)
