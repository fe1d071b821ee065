"""Counts how often the agent has died in a step that runs code of users: a hook, the start of workers.

Such a step is repeated by the next process, so one that ends its agent would be repeated for ever (protocol
P9). Its record is on disk before it starts and is removed when it has ended; what the next process finds has
ended together with the process before. After some deaths in a row the step is refused.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from mitosis.execution.identity import write_durably

DEATHS = 3
"""The agent dies so often in one step at most; a task that is lost so often is poison (P5)."""
STOPS = 20
"""The same for stops in order, which charge nothing elsewhere: as for deaths by SIGTERM (C-29)."""

Kind = Literal["setup hook", "teardown hook", "probe", "start of workers"]

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """One step of one task group. ``definition`` is what it runs: once changed, it is another step."""

    kind: Kind
    task_group_id: UUID
    definition: str

    @property
    def digest(self) -> str:
        """Return a hash of the definition: 32 hexadecimal digits."""
        return hashlib.sha256(self.definition.encode()).hexdigest()[:32]


class _Record(msgspec.Struct):
    kind: Kind
    digest: str
    begun: bool = False
    """The process that wrote this has begun the step and has not ended it."""
    deaths: int = 0
    stops: int = 0


class StepDeaths:
    """The folder of records of one manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._leaving = False

    def count(self, *, stopped_in_order: bool) -> None:
        """Count the end of the process before. Called once, before any step.

        A stop in order outside any step is a restart by people: it forgets what has been refused.
        """
        found = list(self._records())
        begun = [(path, record) for path, record in found if record.begun]
        for path, record in begun:
            record.begun = False
            if stopped_in_order:
                record.stops += 1
            else:
                record.deaths += 1
            write_durably(path, msgspec.json.encode(record))
            log.warning(
                "step.agent_died",
                extra={"step": record.kind, "deaths": record.deaths, "stops": record.stops},
            )
        if stopped_in_order and not begun:
            for path, _ in found:
                path.unlink(missing_ok=True)

    def refusal(self, step: Step) -> str | None:
        """Return why this step must not be started again; None if it may be."""
        record = self._read(step)
        if record is None or (record.deaths < DEATHS and record.stops < STOPS):
            return None
        died = record.deaths >= DEATHS
        how = f"died {record.deaths} times" if died else f"was stopped {record.stops} times"
        return f"the {step.kind} is given up: the agent of this host {how} while it ran"

    def forget(self, task_group_id: UUID) -> None:
        """Forget what has been refused for a task group: people want it tried again."""
        for path in self._folder.glob(f"{task_group_id}.*.json"):
            path.unlink(missing_ok=True)

    @contextmanager
    def during(self, step: Step) -> Iterator[None]:
        """Keep the record while the block runs. Where the disk is full, a death in it is not counted."""
        record = self._read(step) or _Record(step.kind, step.digest)
        record.begun = True
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(self._path(step), msgspec.json.encode(record))
        except OSError as error:
            log.warning("step.not_recorded", extra={"step": step.kind, "reason": str(error)})
        try:
            yield
        finally:
            if not self._leaving:
                with suppress(OSError):
                    self._path(step).unlink(missing_ok=True)

    def leave(self) -> None:
        """Keep the records of running steps: this process ends them by its own end."""
        self._leaving = True

    def _path(self, step: Step) -> Path:
        return self._folder / f"{step.task_group_id}.{step.kind.replace(' ', '-')}.json"

    def _read(self, step: Step) -> _Record | None:
        for _, record in self._files([self._path(step)]):
            if record.digest == step.digest:
                return record
        return None

    def _records(self) -> Iterator[tuple[Path, _Record]]:
        return self._files(sorted(self._folder.glob("*.json")))

    @staticmethod
    def _files(paths: list[Path]) -> Iterator[tuple[Path, _Record]]:
        """Yield the files that hold a record."""
        for path in paths:
            with suppress(OSError, msgspec.MsgspecError):
                yield path, msgspec.json.decode(path.read_bytes(), type=_Record)
