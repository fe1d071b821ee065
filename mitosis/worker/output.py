"""Keeps the tail of each output stream of a task and counts its bytes; memory is bounded.

Both kinds belong to the worker slot, not to the task (protocol P12), and are empty after :meth:`take`.
A command writes to a pipe that the worker's loop reads. A handler blocks that loop, so it writes to a
file in memory; each tick frees all but its tail.
"""

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mitosis.contracts.task_output import exact_form, readable
from mitosis.worker.linux import free_file_start

_CHUNK = 64 * 1024
_CHUNKS_AT_ONCE = 16
"""1 MiB: the most a pipe can hold (pipe(7)), so one call empties a pipe that has no writer left."""
_PAGE = 4096
_CONTINUATION = range(0x80, 0xC0)


@dataclass(frozen=True, slots=True)
class Tail:
    text: str
    total_bytes: int
    exact: str | None = None
    """The kept bytes in base64, if the text is not exact."""


class Tap(Protocol):
    """Gets every chunk that is read, and says when no more should be."""

    @property
    def full(self) -> bool: ...

    def add(self, chunk: bytes) -> None: ...


_NOTHING = Tail("", 0)

OnTake = Callable[[], object]


def end_of(data: bytes, total: int) -> Tail:
    """Make the tail of ``total`` bytes; a character cut at the beginning, up to 3 bytes, is dropped."""
    start = 0
    while len(data) < total and start < min(3, len(data)) and data[start] in _CONTINUATION:
        start += 1
    data = data[start:]
    text = readable(data)
    return Tail(text, total, exact_form(data, text))


class PipeOutput:
    """stdout or stderr of commands."""

    def __init__(self, tail_bytes: int) -> None:
        self.tail_bytes = tail_bytes
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self._tail = b""
        self._total = 0
        self.on_take: OnTake | None = None
        """Called before :meth:`take` empties the stream."""
        self.tap: Tap | None = None

    @property
    def paused(self) -> bool:
        """Whether nothing is read now, so that the command waits."""
        return self.tap is not None and self.tap.full

    def since(self, position: int) -> tuple[int, bytes]:
        """Return the kept output after ``position``, preceded by its offset."""
        begin = self._total - len(self._tail)
        start = max(position, begin)
        return start, self._tail[start - begin :]

    def read(self, *, rest: bool = False) -> None:
        """Read up to 1 MiB that has arrived, without waiting; the ``rest`` also for a full tap."""
        for _ in range(_CHUNKS_AT_ONCE):
            if self.paused and not rest:
                return
            try:
                chunk = os.read(self.read_fd, _CHUNK)
            except BlockingIOError:
                return
            self._total += len(chunk)
            if self.tap is not None:
                self.tap.add(chunk)
            keep = self.tail_bytes
            self._tail = (self._tail + chunk)[-keep:] if keep else b""

    def take(self) -> Tail:
        """Return the tail of the output since the last call, and empty the stream."""
        self.read(rest=True)
        if self.on_take is not None:
            self.on_take()
        if not self._total:
            return _NOTHING
        tail = end_of(self._tail, self._total)
        self._tail, self._total = b"", 0
        return tail


def memory_file(name: str) -> int:
    """Create a file in memory; every write goes to its end. Source: memfd_create(2)."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    empty_file(fd)
    return fd


def empty_file(fd: int) -> None:
    """Make a file of :func:`memory_file` as it was at first; a program may have changed its flags."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)


def tail_of(fd: int, tail_bytes: int) -> Tail:
    """Return the tail of a file."""
    size = os.fstat(fd).st_size
    if not size:
        return _NOTHING
    keep = min(size, tail_bytes)
    return end_of(os.pread(fd, keep, size - keep), size)


class MemoryOutput:
    """stdout or stderr of handlers: written by the worker itself and by child processes."""

    def __init__(self, fd: int, tail_bytes: int) -> None:
        """Use ``fd`` of :func:`memory_file`, which another process may have made."""
        self.fd, self.tail_bytes = fd, tail_bytes
        self._forgotten = 0
        self.on_take: OnTake | None = None
        """Called before :meth:`take` empties the stream."""

    def since(self, position: int) -> tuple[int, bytes]:
        """Return the kept output after ``position``, preceded by its offset."""
        size = os.fstat(self.fd).st_size
        start = min(size, max(position, size - self.tail_bytes))
        return start, os.pread(self.fd, size - start, start)

    def trim(self) -> None:
        """Free the memory of all but the tail."""
        end = (os.fstat(self.fd).st_size - self.tail_bytes) // _PAGE * _PAGE
        if end > self._forgotten:
            free_file_start(self.fd, end)
            self._forgotten = end

    def take(self) -> Tail:
        """Return the tail of the output since the last call, and empty the stream."""
        if self.on_take is not None:
            self.on_take()
        tail = tail_of(self.fd, self.tail_bytes)
        if tail.total_bytes:
            empty_file(self.fd)
            self._forgotten = 0
        return tail
