"""What a worker service and the supervisor of one attempt say to each other: lines of JSON on two pipes."""

from typing import Any

import msgspec

from mitosis.worker.report import Ended


class Job(msgspec.Struct, tag="job", kw_only=True):
    """Service → supervisor: start this."""

    argv: list[str]
    environment: dict[str, str]
    folder: str
    input: str
    """What it reads from standard input."""
    progress_file: str
    """A FIFO to make, to which it writes lines of progress."""


class Halt(msgspec.Struct, tag="halt"):
    """Service → supervisor: SIGTERM now, SIGKILL after the grace."""

    grace_seconds: float


class Said(msgspec.Struct, tag="said"):
    """Supervisor → service: a line of progress."""

    fraction: float | None = None
    stage: str | None = None
    message: str | None = None
    checkpoint: Any = None


class Over(msgspec.Struct, tag="over"):
    """Supervisor → service: it has ended, and no process of it is left."""

    ended: Ended


to_supervisor = msgspec.json.Decoder(Job | Halt)
from_supervisor = msgspec.json.Decoder(Said | Over)
encode = msgspec.json.Encoder().encode
