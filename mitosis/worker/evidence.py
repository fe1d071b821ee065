"""Two files that survive a worker: its zygote, or the next process of the agent, reads them.

The last messages of a dying worker may be lost, since ZeroMQ sends them from another thread. A byte in
shared memory is there at once. So the zygote knows for certain which task was running, and the stderr of
its handler. The other file is in the run folder of the agent and holds the last attempts that the worker
has begun: when the agent dies with everything below it, its next process names them in its hello
(protocol P5). Recording a start costs no system call.

Behind them that file holds a number, by which the agent takes back what a worker has not begun although it
reads no messages (protocol P7). The worker records a start and *then* reads the number; the agent changes
the number, waits, and *then* reads the record. So one of them sees what the other has done.

The last number counts what this process of the worker has begun. The starts of short tasks are not said
(:mod:`mitosis.worker.start_notice`), so the agent reads from here what a dead worker had begun.
"""

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mitosis.contracts.attempt import AttemptKey
from mitosis.worker.output import memory_file, tail_of

KEPT = 128
"""Attempts kept for each worker: twice as many as it may hold, so all without a report are among them."""
PREFIX = "begun-"

_MARK = struct.Struct("=qq")
_NO_TASK = AttemptKey(-1, -1)
_WITHDRAWALS = struct.Struct("=q")
_WITHDRAWALS_AT = _MARK.size * (1 + KEPT)
_BEGUN = struct.Struct("=q")
_BEGUN_AT = _WITHDRAWALS_AT + _WITHDRAWALS.size
_SIZE = _BEGUN_AT + _BEGUN.size
_MARK_CELLS = _MARK.size // 8
_WITHDRAWALS_CELL, _BEGUN_CELL = _WITHDRAWALS_AT // 8, _BEGUN_AT // 8


class Evidence(NamedTuple):
    """Descriptors, shared by zygote and worker."""

    stderr_fd: int
    mark_fd: int

    @classmethod
    def create(cls, folder: str, slot: int) -> "Evidence":
        """Open both files of the worker in this slot; ``folder``: see :func:`begun_attempts`.

        What an earlier worker of the slot has begun stays in the file.
        """
        evidence = cls(memory_file("stderr"), _mark_file(folder, slot))
        os.pwrite(evidence.mark_fd, _MARK.pack(*_NO_TASK), 0)
        os.pwrite(evidence.mark_fd, _BEGUN.pack(0), _BEGUN_AT)
        return evidence

    def close(self) -> None:
        for fd in self:
            os.close(fd)

    def stderr_tail(self, tail_bytes: int) -> str:
        """Return the tail of the stderr of the running handler."""
        return tail_of(self.stderr_fd, tail_bytes).text

    def running(self) -> AttemptKey | None:
        """Return the attempt that was running; None too if a task has cut the file."""
        with suppress(OSError):
            return _running(self.mark_fd)
        return None


class RunningMark:
    """The worker's side of both files; costs no system call."""

    def __init__(self, mark_fd: int) -> None:
        self._cells = memoryview(mmap.mmap(mark_fd, _SIZE)).cast("q")
        self._next = 0
        self._withdrawals = self._cells[_WITHDRAWALS_CELL]

    def put(self, key: AttemptKey) -> None:
        """Record that this attempt begins, before it does."""
        self._write(0, key)
        self._next = self._next % KEPT + 1
        self._write(_MARK_CELLS * self._next, key)
        self._cells[_BEGUN_CELL] += 1

    def _write(self, cell: int, key: AttemptKey) -> None:
        """Write a key so that a kill at any moment leaves a whole one or none: a cell is one store."""
        self._cells[cell] = _NO_TASK.task_id
        self._cells[cell + 1] = key.attempt
        self._cells[cell] = key.task_id

    def clear(self) -> None:
        """Record that it has ended; it stays among the last that were begun."""
        self._cells[0] = _NO_TASK.task_id

    def take_out(self) -> None:
        """Record that the last one has not begun after all."""
        self._cells[_MARK_CELLS * self._next] = _NO_TASK.task_id
        self.clear()

    def withdrawn(self) -> bool:
        """Return whether the agent has withdrawn what this worker holds, since the last call."""
        number = self._cells[_WITHDRAWALS_CELL]
        if number == self._withdrawals:
            return False
        self._withdrawals = number
        return True


def withdraw(folder: Path, slot: int) -> None:
    """Keep the worker in this slot from beginning a task that it holds now; see :class:`RunningMark`.

    Raises:
        OSError: the file is not there any more, or a task has cut it. So for all that read one.
    """
    with (folder / f"{PREFIX}{slot}").open("r+b", buffering=0) as file:
        (count,) = _WITHDRAWALS.unpack(_whole(file.fileno(), _WITHDRAWALS.size, _WITHDRAWALS_AT))
        again = _WITHDRAWALS.pack((count + 1) % 2**62)
        os.pwrite(file.fileno(), again, _WITHDRAWALS_AT)


def running_attempt(folder: Path, slot: int) -> AttemptKey | None:
    """Return the attempt that the worker in this slot has begun and not ended."""
    with (folder / f"{PREFIX}{slot}").open("rb", buffering=0) as file:
        return _running(file.fileno())


def begun_by_process(folder: Path, slot: int) -> set[AttemptKey]:
    """Return the last attempts that the process of this slot has begun, or had before it died."""
    with (folder / f"{PREFIX}{slot}").open("rb", buffering=0) as file:
        data = _whole(file.fileno(), _SIZE)
    (count,) = _BEGUN.unpack_from(data, _BEGUN_AT)
    ring = data[_MARK.size : _MARK.size * (1 + min(max(0, count), KEPT))]
    return {AttemptKey(*key) for key in _MARK.iter_unpack(ring) if key[0] != _NO_TASK.task_id}


def begun_attempts(folder: Path) -> set[AttemptKey]:
    """Return the last attempts that the workers of an agent have begun, from the files in its run folder."""
    return {key for file in folder.glob(f"{PREFIX}*") for key in _keys(file)}


def forget_begun(folder: Path) -> None:
    """Remove the files of an earlier process of the agent."""
    for file in folder.glob(f"{PREFIX}*"):
        file.unlink(missing_ok=True)


def _running(mark_fd: int) -> AttemptKey | None:
    key = AttemptKey(*_MARK.unpack(_whole(mark_fd, _MARK.size)))
    return None if key.task_id == _NO_TASK.task_id else key


def _whole(descriptor: int, size: int, at: int = 0) -> bytes:
    data = os.pread(descriptor, size, at)
    if len(data) < size:
        raise OSError(errno.EIO, "a task has cut the file of what its worker has begun")
    return data


def _mark_file(folder: str, slot: int) -> int:
    path = os.path.join(folder, f"{PREFIX}{slot}")  # noqa: PTH118 - a string is wanted
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.fstat(descriptor).st_size != _SIZE:
        os.ftruncate(descriptor, 0)
        empty = _MARK.pack(*_NO_TASK) * (1 + KEPT) + _WITHDRAWALS.pack(0) + _BEGUN.pack(0)
        os.pwrite(descriptor, empty, 0)  # no hole: a full disk is an error here
    return descriptor


def _keys(file: Path) -> Iterator[AttemptKey]:
    """Yield the attempts in one file, which any task of this user may have changed."""
    data = b""
    with suppress(OSError), file.open("rb") as opened:
        data = opened.read(_WITHDRAWALS_AT)
    for number, attempt in _MARK.iter_unpack(data[: len(data) // _MARK.size * _MARK.size]):
        if number >= 0 and 0 <= attempt < 2**31:
            yield AttemptKey(number, attempt)
