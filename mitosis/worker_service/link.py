"""The calls of a session, made as a worker service: claims and reports of named tasks (P10)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from mitosis.client.service_api import ServiceApi
from mitosis.concurrency import wait_event
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import ApiUnavailable, MitosisError, WorkerNotRegistered
from mitosis.contracts.named_tasks import TaskName
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.service_tasks import (
    ClaimNamedTasks,
    HeldAttempt,
    NamedTaskAttempt,
    RegistrationStanding,
)
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimedTask,
    ClaimTasks,
    Followed,
    FollowedAnswer,
    LeaseStanding,
    ReportAnswer,
    WriteOutput,
    WriteOutputAnswer,
)
from mitosis.execution.backoff import is_refusal
from mitosis.execution.reporter import Reporter
from mitosis.worker_service.attempts import (
    Groups,
    claimed,
    held,
    named_report,
    not_executed,
)
from mitosis.worker_service.registration import Registration
from mitosis.worker_service.targets import Target

RECOUNT_SECONDS = 0.25
SETTLE_SECONDS = 0.002
"""From the answer to reports until the reporter has taken them off its list."""
DRAINED_SECONDS = 5.0
"""A draining service gets nothing and looks again after so long."""

log = logging.getLogger(__name__)


class ServiceLink:
    """Implements :class:`~mitosis.execution.port.SessionApi` for one worker service."""

    def __init__(
        self,
        api: ServiceApi,
        targets: Mapping[TaskName, Target],
        slots: int,
        folder: Path,
        look_now: Callable[[], None],
    ) -> None:
        """Make no call yet; :meth:`connect` first.

        Args:
            api: with the token of the service.
            targets: how each named task is executed.
            slots: so many attempts the API gives at most.
            folder: in which commands start.
            look_now: sends a heartbeat at once, which shows what a refusal means.
        """
        self.groups = Groups()
        self._api = api
        self._targets = targets
        self._slots = slots
        self._answered = asyncio.Event()
        """Reports have been answered."""
        self._folder = str(folder)
        self._look_now = look_now
        self._registration: Registration
        self._reporter: Reporter
        self._running: Callable[[], Iterable[AttemptKey]] = tuple

    def connect(
        self,
        registration: Registration,
        reporter: Reporter,
        running: Callable[[], Iterable[AttemptKey]],
    ) -> None:
        """Name the parts that need this one themselves; ``running`` returns what the session holds."""
        self._registration, self._reporter, self._running = registration, reporter, running

    def held(self) -> tuple[HeldAttempt, ...]:
        """Return what the process executes, and what has ended and has no answer yet."""
        return held(self.groups, self._running(), self._reporter.pending())

    def unreported(self) -> tuple[HeldAttempt, ...]:
        """Return what has ended and has no answer yet."""
        return held(self.groups, (), self._reporter.pending())

    async def claim(self, request: ClaimTasks) -> ClaimAnswer:
        """Claim for free slots. A registration that is over is made again first."""
        self.groups.keep(self._running())
        while True:
            holding = await self._held_with_room()
            known = self._registration.registration_id
            body = ClaimNamedTasks(
                incarnation=self._registration.incarnation,
                held=holding,
                max_tasks=min(request.max_tasks, self._slots - len(holding)),
                wait_seconds=request.wait_seconds,
            )
            try:
                answer = await self._api.claim(body)
            except WorkerNotRegistered:
                await self._registration.again(known)
                continue
            except MitosisError as error:
                if is_refusal(error):
                    self._look_now()
                raise
            if answer.draining and not answer.tasks:
                await asyncio.sleep(DRAINED_SECONDS)
            tasks = [task for one in answer.tasks if (task := self._accepted(one)) is not None]
            return ClaimAnswer(standing=LeaseStanding.ACTIVE, tasks=tasks)

    async def _held_with_room(self) -> tuple[HeldAttempt, ...]:
        """Return what is held, once that is less than the slots.

        The API counts what has ended until it is reported. A claim that comes before would find no room, and
        wait with that count.
        """
        while len(holding := self.held()) >= self._slots:
            if await wait_event(self._answered, RECOUNT_SECONDS):
                self._answered.clear()
                await asyncio.sleep(SETTLE_SECONDS)
        return holding

    def _accepted(self, attempt: NamedTaskAttempt) -> ClaimedTask | None:
        """Return an attempt to execute; report one that is not to be executed."""
        key = self.groups.note(attempt)
        if attempt.stop:
            report = not_executed(key, FailureKind.CANCELLED, "its task group has ended")
        elif TaskName(attempt.namespace, attempt.name, attempt.version) not in self._targets:
            why = "this process of the worker service does not support the named task"
            report = not_executed(key, FailureKind.NOT_STARTED, why)
        else:
            return claimed(attempt, key, self._targets, self._folder)
        self._reporter.add(self.groups.number(key), [report], urgent=True)
        return None

    async def report(self, epoch: int, reports: Sequence[bytes]) -> ReportAnswer:
        """Report attempts of the task group with the number ``epoch``."""
        named = [named_report(epoch, report) for report in reports]
        known = self._registration.registration_id
        answer = await self._api.report(self._registration.incarnation, named)
        self._answered.set()
        if answer.standing is RegistrationStanding.OVER:
            await self._registration.again(known)
        elif answer.standing is RegistrationStanding.SUPERSEDED:
            self._look_now()
        return ReportAnswer(standing=LeaseStanding.ACTIVE, statuses=answer.statuses)

    async def followed(self, request: Followed) -> FollowedAnswer:
        """Wait for ever: live output of worker services has no followers."""
        await asyncio.Event().wait()
        raise ApiUnavailable(f"the output of lease {request.epoch} has no followers")

    async def output(self, request: WriteOutput) -> WriteOutputAnswer:
        """Drop output, which nothing follows."""
        return WriteOutputAnswer(standing=LeaseStanding.ACTIVE, written=0)
