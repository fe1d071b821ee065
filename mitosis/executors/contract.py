"""What an executor is given and has to do; ``tests/integration/executors/test_contract.py`` checks it.

Packages import what they need from here. An :class:`ExecutorKind` lives as long as the process of a worker
service. It makes one :class:`Executor` for each attempt. All of their methods are called in the event loop
of the executors, so they must not block it.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import FailureKind
from mitosis.worker.report import Ended, encode_result

__all__ = [
    "CheckpointRefused",
    "Ended",
    "ExecutionContext",
    "Executor",
    "ExecutorKind",
    "ExecutorTask",
    "FailureKind",
    "Progress",
    "Reporting",
    "ResourcesRefused",
    "ServiceFacts",
    "encode_result",
    "positive",
]
"""What packages with executors import."""
MAX_STAGE_CHARS = 100
MAX_MESSAGE_CHARS = 1_000


class ResourcesRefused(Exception):
    """The machine or the remote service lacks what a task needs now; the text names what, and how much."""


class CheckpointRefused(Exception):
    """The attempt does not count any more, so its checkpoint was not stored: end, and start nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an attempt is."""

    fraction: float = 0.0
    """0 to 1; never falls."""
    stage: str = ""
    message: str = ""

    def after(self, fraction: float | None, stage: str | None, message: str | None) -> "Progress":
        """Return the progress after a statement; what it leaves out stays.

        Raises:
            ValueError: the fraction is not a number from 0 to 1.
        """
        if fraction is not None and not 0.0 <= fraction <= 1.0:  # also NaN
            raise ValueError(f"progress must be a fraction from 0 to 1, not {fraction!r}")
        return Progress(
            fraction=self.fraction if fraction is None else max(self.fraction, fraction),
            stage=self.stage if stage is None else _line(stage, MAX_STAGE_CHARS),
            message=self.message if message is None else _line(message, MAX_MESSAGE_CHARS),
        )


def _line(text: str, limit: int) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorTask:
    """One attempt of a named task, as the API gave it."""

    key: AttemptKey
    task_uuid: UUID
    named_task: str
    """``NAMESPACE/NAME@VERSION``."""
    arguments: dict[str, Any] | list[Any] | None
    configuration: Mapping[str, Any]
    """Of the association of this worker service with the named task."""
    document: str
    """The whole attempt as JSON: what a command reads from standard input."""
    timeout_seconds: float | None = None
    """The worker service enforces it: it cancels the executor."""
    kill_grace_seconds: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str | None = None
    program: tuple[str, ...] = ()
    """argv, of the executor ``command``."""
    handler: str | None = None
    """``module:function``, of the executor ``handler``."""


class Reporting(Protocol):
    """Where progress and checkpoints of one attempt go."""

    def progress(self, progress: Progress) -> None:
        """Show it with the next contact; may be called often."""
        ...

    async def checkpoint(self, value: Any) -> None:
        """Store it; return when the API has acknowledged it.

        Raises:
            CheckpointRefused: the attempt does not count any more.
        """
        ...


class ExecutionContext:
    """What one attempt may use, and what it says about itself."""

    def __init__(
        self,
        key: AttemptKey,
        task: ExecutorTask,
        reporting: Reporting,
        scratch: Path,
        **facts: Any,
    ) -> None:
        """Make it for one attempt.

        Args:
            key: of the attempt.
            task: what it executes.
            reporting: gets its progress and checkpoints.
            scratch: its private folder, which exists.
            facts: ``variables`` and the ``last_checkpoint`` of an earlier attempt.
        """
        self.attempt = key.attempt
        self.fencing = f"{task.task_uuid}/{key.attempt}"
        """Distinct for each attempt: pass it to remote services as idempotency key."""
        self.configuration = task.configuration
        self.scratch_folder = scratch
        self.variables: Mapping[str, str] = facts.get("variables") or {}
        """MITOSIS_* variables of the attempt."""
        self.last_checkpoint: Any = facts.get("last_checkpoint")
        """That an earlier attempt of the task has stored last; None if there is none."""
        self.log = logging.LoggerAdapter(
            logging.getLogger("mitosis.executors"),
            {"task": str(task.task_uuid), "attempt": key.attempt},
        )
        self.shown = Progress()
        """The progress so far."""
        self._reporting = reporting

    def progress(
        self, fraction: float | None = None, stage: str | None = None, message: str | None = None
    ) -> None:
        """Say how far it is; what is left out stays, and a smaller fraction than before is ignored.

        Raises:
            ValueError: the fraction is not a number from 0 to 1.
        """
        after = self.shown.after(fraction, stage, message)
        if after != self.shown:
            self.shown = after
            self._reporting.progress(after)

    async def checkpoint(self, value: Any) -> None:
        """Store a value of JSON for the next attempt; return when the API has acknowledged it.

        Raises:
            CheckpointRefused: the attempt does not count any more: end, and start nothing.
        """
        await self._reporting.checkpoint(value)


class Executor(Protocol):
    """Carries out one attempt."""

    @property
    def kind(self) -> str: ...

    async def execute(self, task: ExecutorTask, context: ExecutionContext) -> Ended:
        """Carry it out; return when nothing of it is left, also after :meth:`cancel`.

        An exception is a failure of the kind ``handler_error``. If it is cancelled as a coroutine, it ends
        what it has started at once.
        """
        ...

    def estimate_seconds(self, task: ExecutorTask) -> float | None:
        """Return how long it should take; None if that is unknown."""
        ...

    def validate_resources(self, task: ExecutorTask) -> None:
        """Check that there is what the task needs. Called before :meth:`execute`; must be quick.

        Raises:
            ResourcesRefused: it lacks something: the attempt does not count, and is tried again later.
        """
        ...

    async def cancel(self, grace_seconds: float) -> None:
        """Ask it to end, and end it by force after the grace; :meth:`execute` then returns.

        Called during :meth:`execute`. A later call can only shorten the grace.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """The process of the worker service, for what its executors start."""

    service: str
    """The same for all processes of this service on this machine."""
    folder: str
    """Where commands start."""
    variables: Mapping[str, str]
    """By which its processes are recognised."""
    python_path: tuple[str, ...] = ()


class ExecutorKind(Protocol):
    """Makes the executors of one kind in a worker service.

    A class or function without arguments that returns one is an entry point of ``mitosis.executors``.
    """

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Check the configuration of an association, and that this machine can execute it.

        Raises:
            MitosisError: names the field and what would be right.
        """
        ...

    async def start(self, service: ServiceFacts) -> None:
        """Remove what an earlier process of the service has left. Called before the first claim."""
        ...

    def make(self) -> Executor:
        """Return the executor of one attempt."""
        ...

    async def close(self) -> None:
        """Release what it shares between attempts."""
        ...


def positive(value: Any) -> float | None:
    """Return a number above 0, as limits and times in configurations are; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
