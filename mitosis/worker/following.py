"""Sends the output of a followed task while it runs, from the tails that a worker keeps anyway.

It has no buffer: it sends the part of the tail that is not sent yet. A task that writes faster leaves a
gap in the offsets and costs no memory. A task without followers costs one comparison per turn of the
worker's loop.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import TaskOutput
from mitosis.worker.output import OnTake

PACE_SECONDS = 0.1
NAMES = ("stdout", "stderr")


class Stream(Protocol):
    """The output streams of :mod:`mitosis.worker.output`."""

    on_take: OnTake | None

    def since(self, position: int) -> tuple[int, bytes]: ...


class OutputFeed:
    """Sends the output of one attempt at a time. Off until :meth:`follow`."""

    def __init__(self, send: Callable[[TaskOutput], None]) -> None:
        self.on = False
        self._send = send
        self._key = AttemptKey(0, 0)
        self._streams: Sequence[Stream] = ()
        self._sent = [0, 0]
        self._not_before = 0.0

    def follow(self, key: AttemptKey, streams: Sequence[Stream]) -> None:
        """Send the kept output of this attempt, then what it writes."""
        self.stop()
        self.on, self._key, self._streams, self._sent = True, key, streams, [0, 0]
        for stream in streams:
            stream.on_take = self._pass_on
        self._not_before = 0.0
        self.pump()

    def stop(self) -> None:
        """Stop sending: the attempt has ended, or has no followers."""
        for stream in self._streams:
            stream.on_take = None
        self.on, self._streams = False, ()

    def pump(self) -> None:
        """Send new output, at most once per PACE_SECONDS."""
        now = time.monotonic()
        if now >= self._not_before and self._pass_on():
            self._not_before = now + PACE_SECONDS

    def due_at(self) -> float | None:
        """Return when (``time.monotonic``) :meth:`pump` may send the output that waits; None: none waits."""
        if not self.on:
            return None
        new = (
            stream.since(sent)[1] for stream, sent in zip(self._streams, self._sent, strict=True)
        )
        return self._not_before if any(new) else None

    def _pass_on(self) -> bool:
        passed = False
        for index, stream in enumerate(self._streams):
            offset, data = stream.since(self._sent[index])
            if data:
                self._send(TaskOutput(self._key, NAMES[index], offset, data))
                self._sent[index] = offset + len(data)
                passed = True
        return passed
