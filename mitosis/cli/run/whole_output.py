"""The whole output of the tasks of a run, read while they run and kept in a temporary folder.

Pieces come in order. What arrives is the beginning of a stream, without gaps; the kept tail in the result
may continue it. The worker reports a task after all its output was passed on, so a read that begins after
the result gives everything that will ever come.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

from mitosis.cli.follow.task_output import OutputLost, Stream
from mitosis.client.client import Client
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.wire import OutputPiece

HELD_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class _Key:
    task_id: int
    attempt: int
    stream: Stream


class WholeOutput:
    """The beginnings of the output of all tasks of one group."""

    def __init__(self, client: Client, group: UUID) -> None:
        self._client = client
        self._group = group
        self._reader = uuid4()
        self._after = 0
        self._folder: TemporaryDirectory[str] | None = None
        """Made for the first piece: most runs have none."""
        self._sizes: dict[_Key, int] = {}

    async def read(self) -> None:
        """Read until cancelled; after an error, only :meth:`catch_up` reads."""
        with suppress(MitosisError, OutputLost):
            while True:
                await self._read_once(HELD_SECONDS)

    async def catch_up(self) -> None:
        """Read everything that has been passed on so far; without the API, leave what is there.

        Raises:
            OutputLost: the temporary folder cannot be written.
        """
        try:
            while await self._read_once(0.0):
                pass
        except MitosisError:
            return

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def beginning(self, task: TaskInfo, stream: Stream) -> Path | None:
        """Return the file with the beginning of a stream of the last attempt; None if nothing came."""
        key = _Key(task.task_id, task.attempt, stream)
        return self._path(key) if key in self._sizes else None

    def forget(self, task: TaskInfo) -> None:
        """Delete what came of a task, of all its attempts."""
        for key in [key for key in self._sizes if key.task_id == task.task_id]:
            self._path(key).unlink(missing_ok=True)
            del self._sizes[key]

    async def _read_once(self, wait_seconds: float) -> bool:
        answer = await self._client.read_output(
            self._group, self._reader, after=self._after, wait_seconds=wait_seconds
        )
        for piece in answer.pieces:
            self._add(piece)
        self._after = max(self._after, answer.after)
        await asyncio.sleep(0)
        return bool(answer.pieces)

    def _add(self, piece: OutputPiece) -> None:
        key = _Key(piece.task_id, piece.attempt, piece.stream)
        known = self._sizes.get(key, 0)
        new = piece.data[known - piece.offset :] if known > piece.offset else piece.data
        if piece.offset > known or not new:  # behind a gap, or read before
            return
        try:
            with self._path(key).open("ab") as file:
                file.write(new)
        except OSError as error:
            raise OutputLost(error) from None
        self._sizes[key] = known + len(new)

    def _path(self, key: _Key) -> Path:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="mitosis-run-")
        return Path(self._folder.name) / f"{key.task_id}.{key.attempt}.{key.stream}"
