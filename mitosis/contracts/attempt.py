"""The identity of one attempt of one task; reports, claims and messages are matched by it."""

from typing import NamedTuple


class AttemptKey(NamedTuple):
    """One attempt of one task. On HTTP it is :class:`mitosis.contracts.wire.TaskAttempt`."""

    task_id: int
    attempt: int
