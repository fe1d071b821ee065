"""The output of a followed task while it runs, from the tails that a worker keeps anyway.

Nothing is buffered here: what is sent is whatever of the tail has not been sent yet, so a task that
writes faster than it may be followed leaves a jump in the offsets and costs no memory. A worker whose
task nobody follows pays one comparison per turn of its loop.
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
    """What :mod:`mitosis.worker.output` has two kinds of."""

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
        """Begin with what is kept of what it has written."""
        self.stop()
        self.on, self._key, self._streams, self._sent = True, key, streams, [0, 0]
        for stream in streams:
            stream.on_take = self._pass_on
        self._not_before = 0.0
        self.pump()

    def stop(self) -> None:
        """The attempt is over, or nobody follows any more."""
        for stream in self._streams:
            stream.on_take = None
        self.on, self._streams = False, ()

    def pump(self) -> None:
        """Send what is new, unless that was done a moment ago."""
        now = time.monotonic()
        if now >= self._not_before and self._pass_on():
            self._not_before = now + PACE_SECONDS

    def due_at(self) -> float | None:
        """When (``time.monotonic``) :meth:`pump` has something to send that it may not send yet."""
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
