"""Reports that the API has not acknowledged, on disk (architecture §5).

One file of reserved space that is written from its start and rewound when everything is
acknowledged, so an append is one ``pwrite`` and one ``fdatasync`` without a change of size. Records
carry a checksum and the number of their round; reading stops at the first that is torn, foreign or
of an older round. Reports replayed too often are harmless: they are answered ``duplicate``.
"""

import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from mitosis.contracts.wire import ReportTasks, TaskReport

RESERVED_BYTES = 8 * 1024 * 1024
_HEAD = struct.Struct("<4sIIQ")  # magic, length, crc32 of round and payload, round
_MAGIC = b"MJ01"
_BLANK = bytes(_HEAD.size)

_encoder = msgspec.msgpack.Encoder()


class _Record(msgspec.Struct, array_like=True):
    epoch: int
    report: bytes
    """JSON of a :class:`TaskReport`."""


class Journal:
    """Append, acknowledge, replay. One process has it open at a time (the caller holds a lock)."""

    def __init__(self, path: Path) -> None:
        """Open or create; ``pending`` holds what an earlier process left."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._reserve()
        self._end, self._round, records = _read(self._file)
        self._pending = [(record.epoch, _report(record)) for record in records]

    @property
    def pending(self) -> list[ReportTasks]:
        """What was read at the start and is not acknowledged, one request per epoch, oldest first."""
        by_epoch: dict[int, list[TaskReport]] = {}
        for epoch, report in self._pending:
            by_epoch.setdefault(epoch, []).append(report)
        return [ReportTasks(epoch=epoch, reports=reports) for epoch, reports in by_epoch.items()]

    def append(self, epoch: int, reports: Sequence[TaskReport]) -> None:
        """Durable when it returns.

        Raises:
            OSError: the disk is full or broken; the reports are not in the journal.
        """
        data = b"".join(
            _framed(self._round, _encoder.encode(_Record(epoch, msgspec.json.encode(report))))
            for report in reports
        )
        with self._lock:
            os.pwrite(self._file, data, self._end)
            os.fdatasync(self._file)
            self._end += len(data)

    def clear(self) -> None:
        """Everything is acknowledged: start again at the beginning. Not forced to disk."""
        self._pending = []
        self._round += 1
        self._end = 0
        os.pwrite(self._file, _BLANK, 0)
        if os.fstat(self._file).st_size > RESERVED_BYTES:
            os.ftruncate(self._file, RESERVED_BYTES)

    def close(self) -> None:
        """Waits for an append that runs in a thread; a later one raises OSError."""
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


def _report(record: _Record) -> TaskReport:
    return msgspec.json.decode(record.report, type=TaskReport)


def _checksum(round_number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(round_number.to_bytes(8, "little")))


def _read(descriptor: int) -> tuple[int, int, list[_Record]]:
    """End offset, round and records of the newest whole round."""
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, size, 0)
    records: list[_Record] = []
    end, current = 0, time.time_ns()  # a round that no record of an earlier process can have
    for offset, round_number, payload in _frames(data):
        if records and round_number != current:
            break
        records.append(msgspec.msgpack.decode(payload, type=_Record))
        current, end = round_number, offset
    return end, current, records


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """``(end offset, round, payload)`` of whole records from the start on."""
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
