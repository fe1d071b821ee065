"""Progress and checkpoints of the attempts of a worker service, on their way to the API.

Progress goes with the contacts of the service, all of it in one call; a checkpoint at once.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mitosis.client.service_api import ServiceApi
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError, WorkerNotRegistered
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.service_tasks import (
    MAX_CHECKPOINT_BYTES,
    MAX_PROGRESS,
    ProgressStatus,
    RecordProgress,
    TaskProgress,
)
from mitosis.execution.backoff import until_reached
from mitosis.executors.contract import CheckpointRefused, Progress
from mitosis.worker.report import ResultError, encode_result
from mitosis.worker_service.attempts import Groups
from mitosis.worker_service.registration import Registration


class ProgressBoard:
    """The latest progress of each attempt that was not sent yet; used by two threads."""

    def __init__(self, api: ServiceApi, registration: Registration, groups: Groups) -> None:
        """Send nothing yet.

        Args:
            api: its ``record_progress``.
            registration: of this process.
            groups: knows the task group of each attempt.
        """
        self._api, self._registration, self._groups = api, registration, groups
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._changed: dict[AttemptKey, Progress] = {}

    def of(self, key: AttemptKey) -> "AttemptReporting":
        """Return where one attempt reports to."""
        return AttemptReporting(self, key)

    def note(self, key: AttemptKey, progress: Progress) -> None:
        """Send this with the next contact. From any thread."""
        with self._lock:
            self._changed[key] = progress

    def forget(self, key: AttemptKey) -> None:
        """Drop the progress of an attempt that has ended. From any thread."""
        with self._lock:
            self._changed.pop(key, None)

    async def send(self) -> None:
        """Send what has changed, in one call. What is not answered is sent again by the next contact.

        Raises:
            MitosisError: the API is away, or refuses the call.
        """
        with self._lock:
            sent = dict(list(self._changed.items())[:MAX_PROGRESS])
        if not sent:
            return
        await self._record([self._task_progress(key, progress) for key, progress in sent.items()])
        with self._lock:
            for key, progress in sent.items():
                if self._changed.get(key) == progress:
                    del self._changed[key]

    def save(self, key: AttemptKey, value: Any) -> "asyncio.Future[None]":
        """Store a checkpoint; the future belongs to the loop of the caller, in any thread."""
        saving = asyncio.run_coroutine_threadsafe(self._save(key, value), self._loop)
        return asyncio.wrap_future(saving)

    async def _save(self, key: AttemptKey, value: Any) -> None:
        """Store a checkpoint; try until the API has answered.

        Raises:
            CheckpointRefused: the attempt does not count any more, or the API refuses this process.
            ValueError: it cannot be stored.
        """
        try:
            encoded = encode_result(value, "the checkpoint")
        except ResultError as error:
            raise ValueError(str(error)) from None
        if len(encoded) > MAX_CHECKPOINT_BYTES:
            raise ValueError(
                f"the checkpoint has {len(encoded):,} bytes of JSON; the limit is"
                f" {MAX_CHECKPOINT_BYTES:,}: store the name of a file"
            )
        one = TaskProgress(
            task_id=task_uuid(self._groups.number(key), key.task_id),
            attempt=key.attempt,
            checkpoint=value,
        )
        try:
            (status,) = await until_reached(lambda: self._record([one]))
        except MitosisError as error:
            raise CheckpointRefused(error.message) from None
        if status is not ProgressStatus.RECORDED:
            raise CheckpointRefused("the task has ended, or is executed elsewhere")

    async def _record(self, progress: Sequence[TaskProgress]) -> Sequence[ProgressStatus]:
        while True:
            known = self._registration.registration_id
            body = RecordProgress(
                incarnation=self._registration.incarnation, progress=tuple(progress)
            )
            try:
                return (await self._api.record_progress(body)).statuses
            except WorkerNotRegistered:
                await self._registration.again(known)

    def _task_progress(self, key: AttemptKey, progress: Progress) -> TaskProgress:
        return TaskProgress(
            task_id=task_uuid(self._groups.number(key), key.task_id),
            attempt=key.attempt,
            fraction=progress.fraction,
            stage=progress.stage,
            message=progress.message,
        )


@dataclass(frozen=True, slots=True)
class AttemptReporting:
    """The :class:`~mitosis.executors.contract.Reporting` of one attempt."""

    board: ProgressBoard
    key: AttemptKey

    def progress(self, progress: Progress) -> None:
        self.board.note(self.key, progress)

    async def checkpoint(self, value: Any) -> None:
        await self.board.save(self.key, value)
