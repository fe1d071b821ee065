"""A file of the reports that the API has not acknowledged (architecture §5).

The file has reserved space and is written from its start, in rounds; a round that keeps records of the one
before it is a new file, which takes the place of the old one. A write is one ``pwrite``, which
survives this process; ``durable`` adds one ``fdatasync`` without a change of size, which survives the
host. Records carry a checksum and the number of their round; reading stops at the first that is torn,
foreign or of an older round. A report replayed twice is harmless: it is answered ``duplicate``.
"""

import errno
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import EncodedReport

RESERVED_BYTES = 8 * 1024 * 1024
REWIND_BYTES = 256 * 1024
"""From this size on, a new round replaces a file of mostly acknowledged reports: all are replayed."""
_HEAD = struct.Struct("<4sIIQ")  # magic, length, crc32 of round and payload, round
_MAGIC = b"MJ01"
_BLANK = bytes(_HEAD.size)

_encoder = msgspec.msgpack.Encoder()

Entry = tuple[int, EncodedReport]
"""An epoch and one of its reports."""


class _Facts(msgspec.Struct):
    """What the agent reads of a report. The API checks the rest: no report keeps an agent from starting."""

    task_id: int
    attempt: int
    started_at: float | None = None
    finished_at: float | None = None


_decode_facts = msgspec.json.Decoder(_Facts).decode


class _Record(msgspec.Struct, array_like=True):
    epoch: int
    report: bytes
    """JSON of a :class:`mitosis.contracts.wire.TaskReport`, as its maker encoded it."""


class Journal:
    """Write, clear, take what was left. One process has the file open at a time (the caller holds a lock)."""

    def __init__(self, path: Path) -> None:
        """Open or create the file and read the entries of an earlier process."""
        self._path = path
        self._file = _opened(path)
        os.fsync(self._file)
        self._lock = threading.Lock()
        self._end, self._round, records = _read(self._file)
        self._records = len(records)
        self._found = [(record.epoch, _encoded(record)) for record in records]
        self._finished = False
        self._forced = True
        """Whether records of this round were forced to disk."""

    def take_entries(self) -> list[Entry]:
        """Return the entries read at the start, oldest first, once. They stay in the file."""
        found, self._found = self._found, []
        return found

    def worth_rewinding(self, needed: int) -> bool:
        """Decide whether a new round with the last ``needed`` records is better than a longer file."""
        return needed == 0 or (self._end > REWIND_BYTES and 4 * needed < self._records)

    def write(
        self,
        entries: Sequence[Entry],
        *,
        new_round: bool = False,
        kept: int = 0,
        durable: bool = False,
    ) -> None:
        """Write entries. They survive this process; if ``durable``, they and all before survive the host.

        Args:
            entries: what to add.
            new_round: start again; entries holds every record still needed.
            kept: how many of the first entries of a new round are in the file already. With any, the round
                gets a file of its own, since a kill may tear a write and must not take what was safe.
            durable: force the file to disk.

        Raises:
            OSError: the disk is full or broken; the entries are not in the journal.
        """
        with self._lock:
            if self._finished:
                raise OSError(errno.EBADF, "the journal has its last entries")
            if new_round and kept:
                try:
                    self._replace(entries, durable=durable)
                except OSError:  # no room for a second file: the first has some reserved
                    entries, new_round = entries[kept:], False
                else:
                    return
            at, number = (0, self._round + 1) if new_round else (self._end, self._round)
            self._write(entries, at, number, durable=durable)
            self._records = len(entries) + (0 if new_round else self._records)

    def finish(self, entries: Sequence[Entry]) -> None:
        """Add the last entries and force the file to disk; a write that a thread begins later is refused.

        Raises:
            OSError: as :meth:`write`.
        """
        with self._lock:
            self._finished = True
            self._write(entries, self._end, self._round, durable=True)

    def _write(
        self, entries: Sequence[Entry], at: int, round_number: int, *, durable: bool
    ) -> None:
        self._end = _put(self._file, entries, at, round_number)
        self._round = round_number
        if durable:
            os.fdatasync(self._file)
            self._forced = True

    def _replace(self, entries: Sequence[Entry], *, durable: bool) -> None:
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.unlink(missing_ok=True)
        descriptor = _opened(beside)
        try:
            end = _put(descriptor, entries, 0, self._round + 1)
            if durable or self._forced:
                os.fsync(descriptor)
            beside.replace(self._path)
        except OSError:
            os.close(descriptor)
            beside.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._end, self._round = descriptor, end, self._round + 1
        self._records, self._forced = len(entries), durable or self._forced

    def clear(self) -> None:
        """Start again at the beginning: every report is acknowledged. Not forced to disk."""
        with self._lock:
            self._round += 1
            self._end = self._records = 0
            self._forced = False
            os.pwrite(self._file, _BLANK, 0)
            if os.fstat(self._file).st_size > RESERVED_BYTES:
                os.ftruncate(self._file, RESERVED_BYTES)

    def close(self) -> None:
        """Close the file, after a write that runs in a thread; later writes raise OSError."""
        with self._lock:
            os.close(self._file)
            self._file = -1


def _opened(path: Path) -> int:
    """Open or create a file with reserved space; return its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < RESERVED_BYTES:
            os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _put(descriptor: int, entries: Sequence[Entry], at: int, round_number: int) -> int:
    """Write entries at an offset in one call; return the offset after them."""
    data = b"".join(
        _framed(round_number, _encoder.encode(_Record(epoch, report.report)))
        for epoch, report in entries
    )
    if os.pwrite(descriptor, data, at) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return at + len(data)


def _framed(round_number: int, payload: bytes) -> bytes:
    return (
        _HEAD.pack(_MAGIC, len(payload), _checksum(round_number, payload), round_number) + payload
    )


def _encoded(record: _Record) -> EncodedReport:
    """Return the report with the facts beside its bytes, which are not in the file."""
    found = _decode_facts(record.report)
    key = AttemptKey(found.task_id, found.attempt)
    return EncodedReport(key, found.started_at, found.finished_at, record.report)


def _checksum(round_number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(round_number.to_bytes(8, "little")))


def _read(descriptor: int) -> tuple[int, int, list[_Record]]:
    """Return the end offset, number and records of the newest round."""
    records: list[_Record] = []
    end, current = 0, time.time_ns()  # no record of an earlier process has this round
    for offset, round_number, payload in _frames(descriptor):
        if records and round_number != current:
            break
        records.append(msgspec.msgpack.decode(payload, type=_Record))
        current, end = round_number, offset
    return end, current, records


def _frames(descriptor: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield ``(end offset, round, payload)`` of whole records from the start on."""
    size, offset = os.fstat(descriptor).st_size, 0
    while offset + _HEAD.size <= size:
        magic, length, checksum, round_number = _HEAD.unpack(
            os.pread(descriptor, _HEAD.size, offset)
        )
        start = offset + _HEAD.size
        if magic != _MAGIC or start + length > size:
            return
        payload = os.pread(descriptor, length, start)
        if len(payload) != length or _checksum(round_number, payload) != checksum:
            return
        offset = start + length
        yield offset, round_number, payload
