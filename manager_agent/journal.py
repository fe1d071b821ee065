"""A file of the reports that the API has not acknowledged (architecture §5).

The file has reserved space and is written from its start, in rounds. A write is one ``pwrite``, which
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
from mitosis.contracts.wire import TaskReport
from mitosis.ipc.messages import EncodedReport

RESERVED_BYTES = 8 * 1024 * 1024
REWIND_BYTES = 256 * 1024
"""From this size on, a new round replaces a file of mostly acknowledged reports: all are replayed."""
_HEAD = struct.Struct("<4sIIQ")  # magic, length, crc32 of round and payload, round
_MAGIC = b"MJ01"
_BLANK = bytes(_HEAD.size)

_encoder = msgspec.msgpack.Encoder()
_decode_report = msgspec.json.Decoder(TaskReport).decode

Entry = tuple[int, EncodedReport]
"""An epoch and one of its reports."""


class _Record(msgspec.Struct, array_like=True):
    epoch: int
    report: bytes
    """JSON of a :class:`TaskReport`, as its maker encoded it."""


class Journal:
    """Write, clear, replay. One process has the file open at a time (the caller holds a lock)."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; ``pending`` holds the reports of an earlier process."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._reserve()
        self._end, self._round, records = _read(self._file)
        self._records = len(records)
        self._pending = [(record.epoch, _encoded(record)) for record in records]

    @property
    def pending(self) -> dict[int, list[EncodedReport]]:
        """The reports read at the start and not acknowledged since, by epoch, oldest first."""
        by_epoch: dict[int, list[EncodedReport]] = {}
        for epoch, report in self._pending:
            by_epoch.setdefault(epoch, []).append(report)
        return by_epoch

    def worth_rewinding(self, needed: int) -> bool:
        """Decide whether a new round with the last ``needed`` records is better than a longer file."""
        return needed == 0 or (self._end > REWIND_BYTES and 4 * needed < self._records)

    def write(
        self, entries: Sequence[Entry], *, new_round: bool = False, durable: bool = False
    ) -> None:
        """Write entries. They survive this process; if ``durable``, they and all before survive the host.

        Args:
            entries: what to add.
            new_round: start again at the beginning; entries holds every record still needed.
            durable: force the file to disk.

        Raises:
            OSError: the disk is full or broken; the entries are not in the journal.
        """
        with self._lock:
            at, number = (0, self._round + 1) if new_round else (self._end, self._round)
            data = b"".join(
                _framed(number, _encoder.encode(_Record(epoch, report.report)))
                for epoch, report in entries
            )
            if os.pwrite(self._file, data, at) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fdatasync(self._file)
            self._end, self._round = at + len(data), number
            self._records = len(entries) + (0 if new_round else self._records)

    def clear(self) -> None:
        """Start again at the beginning: every report is acknowledged. Not forced to disk."""
        with self._lock:
            self._pending = []
            self._round += 1
            self._end = self._records = 0
            os.pwrite(self._file, _BLANK, 0)
            if os.fstat(self._file).st_size > RESERVED_BYTES:
                os.ftruncate(self._file, RESERVED_BYTES)

    def close(self) -> None:
        """Close the file, after a write that runs in a thread; later writes raise OSError."""
        with self._lock:
            os.close(self._file)
            self._file = -1

    def _reserve(self) -> None:
        if os.fstat(self._file).st_size < RESERVED_BYTES:
            os.posix_fallocate(self._file, 0, RESERVED_BYTES)
            os.fsync(self._file)


def _framed(round_number: int, payload: bytes) -> bytes:
    return (
        _HEAD.pack(_MAGIC, len(payload), _checksum(round_number, payload), round_number) + payload
    )


def _encoded(record: _Record) -> EncodedReport:
    """Return the report with the facts beside its bytes, which are not in the file."""
    found = _decode_report(record.report)
    key = AttemptKey(found.task_id, found.attempt)
    return EncodedReport(key, found.started_at, found.finished_at, record.report)


def _checksum(round_number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(round_number.to_bytes(8, "little")))


def _read(descriptor: int) -> tuple[int, int, list[_Record]]:
    """Return the end offset, number and records of the newest round."""
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, size, 0)
    records: list[_Record] = []
    end, current = 0, time.time_ns()  # no record of an earlier process has this round
    for offset, round_number, payload in _frames(data):
        if records and round_number != current:
            break
        records.append(msgspec.msgpack.decode(payload, type=_Record))
        current, end = round_number, offset
    return end, current, records


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield ``(end offset, round, payload)`` of whole records from the start on."""
    offset = 0
    while offset + _HEAD.size <= len(data):
        magic, length, checksum, round_number = _HEAD.unpack_from(data, offset)
        start = offset + _HEAD.size
        payload = data[start : start + length]
        whole = magic == _MAGIC and len(payload) == length
        if not whole or _checksum(round_number, payload) != checksum:
            return
        offset = start + length
        yield offset, round_number, payload
