"""Sends the heartbeats of a worker service, and has stopped what their answers name (P10)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from mitosis.client.service_api import ServiceApi
from mitosis.concurrency import wait_event
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError, WorkerNotRegistered
from mitosis.contracts.ids import parse_task_uuid
from mitosis.contracts.service_tasks import HeldAttempt
from mitosis.contracts.wire import StopOrder
from mitosis.contracts.worker_services import HeldTask, StopTask, WorkerHeartbeat
from mitosis.execution.backoff import is_refusal
from mitosis.execution.events import StopsOrdered, Superseded
from mitosis.worker_service.link import ServiceLink
from mitosis.worker_service.registration import Registration

log = logging.getLogger(__name__)


class Changes(Protocol):
    """What the service supports, and with which configurations; it may change while it runs."""

    def changed(self) -> bool:
        """Return whether it differs from what was declared last.

        Raises:
            MitosisError: it cannot be read now.
        """
        ...

    def take_back(self) -> Sequence[str]:
        """Go back to what was declared before; return the files that had changed it."""
        ...


class NoChanges:
    """Never changes."""

    def changed(self) -> bool:
        return False

    def take_back(self) -> Sequence[str]:
        return ()


class Stoppable(Protocol):
    """Acts on the stops of attempts."""

    def handle(self, event: StopsOrdered | Superseded) -> object: ...


class ServiceContact:
    """Sends heartbeats until cancelled: often while something runs, seldom otherwise."""

    def __init__(
        self,
        api: ServiceApi,
        registration: Registration,
        link: ServiceLink,
        changes: Changes | None = None,
    ) -> None:
        """Send nothing before :meth:`run`.

        Args:
            api: its ``heartbeat``.
            registration: of this process.
            link: knows what the process holds.
            changes: what the service supports; None: always the same.
        """
        self.changes = changes or NoChanges()
        self.slots: Stoppable | None = None
        self._api = api
        self._registration = registration
        self._link = link
        self.send_progress: Callable[[], Awaitable[None]] | None = None
        """Sends the progress of what runs, if that is known."""
        self._now = asyncio.Event()
        self._draining = False
        self._refused = ""
        """Why the last change does not count, as it was logged."""

    def look_now(self) -> None:
        """Send a heartbeat without waiting for its time."""
        self._now.set()

    async def run(self, look_seconds: float) -> None:
        """Send heartbeats for ever.

        Raises:
            MitosisError: the API refuses this process (401, superseded).
        """
        sent_at = -self._registration.heartbeat_seconds
        while True:
            held = self._link.held()
            due = time.monotonic() - sent_at >= self._registration.heartbeat_seconds
            if held or due or self._now.is_set():
                self._now.clear()
                began = time.monotonic()
                if await self._beat(held):
                    sent_at = began
                    await self._send_progress()
            await wait_event(self._now, look_seconds)
            await self._declare_changes()

    async def _send_progress(self) -> None:
        """Send progress; it is only shown, so that no error of it ends the contact."""
        if self.send_progress is None:
            return
        try:
            await self.send_progress()
        except MitosisError as error:
            log.warning("progress.not_sent", extra={"reason": error.message})

    async def _declare_changes(self) -> None:
        """Declare a configuration that has changed; one that is wrong or refused leaves the last one."""
        try:
            if not self.changes.changed():
                self._refused = ""
                return
        except MitosisError as error:
            self._log_refused(error, ())
            return
        self._refused = ""
        log.info("configuration.changed")
        try:
            await self._registration.declare()
        except MitosisError as error:
            self._log_refused(error, self.changes.take_back())
            self._now.set()  # its answer shows whether the process is refused and not the configuration

    def _log_refused(self, error: MitosisError, files: Sequence[str]) -> None:
        if error.message != self._refused:
            self._refused = error.message
            facts = {"reason": error.message, "files": list(files)}
            log.error("configuration.refused", extra=facts)

    async def _beat(self, held: Sequence[HeldAttempt]) -> bool:
        """Send one heartbeat; return whether it was answered.

        Raises:
            MitosisError: as :meth:`run`.
        """
        known = self._registration.registration_id
        named = tuple(HeldTask(task_id=one.task_id, attempt=one.attempt) for one in held)
        body = WorkerHeartbeat(incarnation=self._registration.incarnation, held=named)
        try:
            answer = await self._api.heartbeat(body)
        except WorkerNotRegistered:
            await self._registration.again(known)
            self._now.set()
            return False
        except MitosisError as error:
            if is_refusal(error):
                raise
            log.warning("heartbeat.failed", extra={"reason": error.message})
            return False
        if answer.draining != self._draining:
            self._draining = answer.draining
            log.info("worker.drain_changed", extra={"draining": answer.draining})
        self._stop(answer.stop)
        return True

    def _stop(self, orders: Sequence[StopTask]) -> None:
        if self.slots is None or not orders:
            return
        stops = tuple(_order(one) for one in orders if not one.superseded)
        if stops:
            self.slots.handle(StopsOrdered(stops))
        for one in orders:
            if one.superseded:
                self.slots.handle(Superseded(frozenset({_key(one)}), one.grace_seconds))


def _key(one: StopTask) -> AttemptKey:
    return AttemptKey(parse_task_uuid(one.task_id)[1], one.attempt)


def _order(one: StopTask) -> StopOrder:
    return StopOrder(
        task_id=parse_task_uuid(one.task_id)[1],
        attempt=one.attempt,
        grace_seconds=one.grace_seconds,
        reason=one.reason,
    )
