"""Sends all that a command writes, for a reader that wants the whole output.

The agent acknowledges what the API keeps. Up to ``WINDOW_BYTES`` of each stream may be on the way; beyond
that the worker reads no more, and the command waits in write(2), as before a slow reader of a pipe. Output
that fits the kept tail is not sent. Nothing waits for ever: when the agent drops the output, or acknowledges
nothing for ``STALL_SECONDS``, the rest is counted and dropped as for any other task.
"""

import time
from collections.abc import Callable, Sequence

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import OutputTaken, TaskOutput
from mitosis.worker.output import PipeOutput

WINDOW_BYTES = 1_048_576
PIECE_BYTES = 131_072
PACE_SECONDS = 0.05
"""Less than a whole piece waits this long for more."""
STALL_SECONDS = 30.0
NAMES = ("stdout", "stderr")


class _Stream:
    """The part of one stream that the agent has not acknowledged."""

    def __init__(self, name: str, pipe: PipeOutput) -> None:
        self.name = name
        self.pipe = pipe
        self.unsent = bytearray()
        self.sent_to = 0
        self.taken_to = 0
        pipe.tap = self

    @property
    def full(self) -> bool:
        return self.sent_to - self.taken_to + len(self.unsent) >= WINDOW_BYTES

    @property
    def overflows(self) -> bool:
        """Whether the kept tail does not hold everything."""
        return self.sent_to + len(self.unsent) > self.pipe.tail_bytes

    def add(self, chunk: bytes) -> None:
        self.unsent += chunk


class WholeOutput:
    """The whole output of one attempt at a time. Off until :meth:`begin`."""

    def __init__(self, send: Callable[[TaskOutput], None]) -> None:
        self.on = False
        self._send = send
        self._key = AttemptKey(0, 0)
        self._streams: Sequence[_Stream] = ()
        self._finishing = False
        self._progress_at = 0.0
        self._pace_at = 0.0

    def begin(self, key: AttemptKey, pipes: Sequence[PipeOutput]) -> None:
        """Keep what the attempt writes from now on."""
        self.on, self._finishing, self._key = True, False, key
        self._streams = [_Stream(name, pipe) for name, pipe in zip(NAMES, pipes, strict=True)]
        self._progress_at = time.monotonic()

    def end(self) -> None:
        """Forget the attempt; its streams keep their tails only."""
        for stream in self._streams:
            stream.pipe.tap = None
        self.on, self._streams = False, ()

    def finish(self) -> None:
        """Send the rest: the command has ended."""
        self._finishing = True
        self.pump()

    def stop_waiting(self) -> None:
        """End the attempt now if only its output keeps it."""
        if self._finishing:
            self.end()

    @property
    def undelivered(self) -> bool:
        """Whether the agent has not taken everything yet."""
        return any(
            stream.taken_to < stream.sent_to or (stream.unsent and stream.overflows)
            for stream in self._streams
        )

    def taken(self, message: OutputTaken) -> None:
        """Note what the agent has passed on, or that nothing wants the output."""
        if message.key != self._key or not self.on:
            return
        if message.dropped:
            self.end()
            return
        self._progress_at = time.monotonic()
        for stream in self._streams:
            if stream.name == message.stream:
                stream.taken_to = max(stream.taken_to, message.position)
        self.pump()

    def pump(self) -> None:
        """Send what may be sent; give up when nothing was taken for too long."""
        now = time.monotonic()
        on_the_way = any(stream.taken_to < stream.sent_to for stream in self._streams)
        if not on_the_way:
            self._progress_at = now
        elif now >= self._progress_at + STALL_SECONDS:
            self.end()
            return
        all_of_it = self._finishing or now >= self._pace_at
        for stream in self._streams:
            while stream.overflows and len(stream.unsent) >= (1 if all_of_it else PIECE_BYTES):
                piece = bytes(stream.unsent[:PIECE_BYTES])
                del stream.unsent[:PIECE_BYTES]
                self._send(TaskOutput(self._key, stream.name, stream.sent_to, piece, whole=True))
                stream.sent_to += len(piece)
                self._pace_at = now + PACE_SECONDS

    def due_at(self) -> float | None:
        """Return when (``time.monotonic``) :meth:`pump` is due without an event; None: it is not."""
        if any(stream.unsent and stream.overflows for stream in self._streams):
            return self._pace_at
        if any(stream.taken_to < stream.sent_to for stream in self._streams):
            return self._progress_at + STALL_SECONDS
        return None
