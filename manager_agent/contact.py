"""Renews contact with the API every 3 s, with or without a lease, and fences the session without it.

Only this keeps a host alive (protocol P4). Owns the agent's two clocks: when the last acknowledged
renewal was *sent*, and when the held tasks were last compared with PostgreSQL.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable

from manager_agent.agent_api import AgentApi
from manager_agent.host import Host
from manager_agent.lease_session import LeaseSession
from mitosis.concurrency import wait_event
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.liveness import HOST_LOST_AFTER
from mitosis.contracts.wire import (
    MAX_HELD,
    Held,
    LeaseStanding,
    Renewal,
    RenewalAnswer,
    TaskAttempt,
)
from mitosis.execution.backoff import is_refusal
from mitosis.execution.events import Announced, Fenced, Renewed, StopsOrdered, Superseded
from mitosis.execution.reporter import Reporter
from mitosis.execution.state import State
from mitosis.worker.start_wait import START_SECONDS

RENEW_SECONDS = 3.0
HELD_SECONDS = 30.0
STARTED_AFTER_SECONDS = 1.0
PROVEN_AFTER_SECONDS = 2 * START_SECONDS
"""A task that was begun so long ago waits for no process."""
FENCE_CHECK_SECONDS = 0.5
LATE_SECONDS = 2.0

log = logging.getLogger(__name__)


class Contact:
    """Renews for the current session, until cancelled."""

    def __init__(
        self,
        api: AgentApi,
        reporter: Reporter,
        incarnation: int,
        session: Callable[[], LeaseSession | None],
        renew_seconds: float = RENEW_SECONDS,
        counted_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Renew nothing before :meth:`run`.

        Args:
            api: its ``renew``.
            reporter: holds the attempts whose reports are not acknowledged, of any session.
            incarnation: of this process.
            session: returns the current session, if any.
            renew_seconds: the time between two renewals.
            counted_lost: called when the API counts this host as lost while it has no session.
        """
        self.incarnation = incarnation
        self.host: Host | None = None
        """Takes up what the answers order."""
        self.lack: Callable[[], str | None] = lambda: None
        """Returns why this host claims nothing, if it lacks something."""
        self.host_lost_after_seconds = HOST_LOST_AFTER.total_seconds()  # until hello is answered
        self._api = api
        self._session = session
        self._every = renew_seconds
        self._counted_lost = counted_lost
        self._reporter = reporter
        self._now = asyncio.Event()
        self._acked_from = time.monotonic()
        self._held_at: float | None = None
        self._reported_started: set[AttemptKey] = set()
        self._workers_of: int | None = None
        """The epoch under which workers are known to run."""

    @property
    def recent(self) -> bool:
        """Whether the last renewal that was due has been answered."""
        return time.monotonic() - self._acked_from < self._every + LATE_SECONDS

    def renew_now(self) -> None:
        """Renew without waiting for the period to pass."""
        self._now.set()

    def restart(self) -> None:
        """Start both clocks again after a hello: the next renewal compares held tasks."""
        self._acked_from = time.monotonic()
        self._held_at = None

    async def run(self) -> None:
        """Renew for ever.

        Raises:
            MitosisError: the API refuses this agent (401, superseded, in use).
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_for_ever())
            group.create_task(self._watch_fence())

    async def _renew_for_ever(self) -> None:
        while True:
            await wait_event(self._now, self._every)
            self._now.clear()
            try:
                await self._renew()
            except MitosisError as error:
                self._held_at = None  # compare held tasks after the outage
                if is_refusal(error):
                    raise
                log.warning("renewal.failed", extra={"reason": error.message})
                await asyncio.sleep(min(1.0, self._every))
                self._now.set()

    async def _renew(self) -> None:
        session = self._session()
        sent_at = time.monotonic()
        renewal, started, returned = self._next_renewal(session, sent_at)
        renewal.report_trouble = self._reporter.trouble() or self.lack()
        answer = await self._api.renew(renewal)
        self._acked_from = sent_at
        self.host_lost_after_seconds = answer.host_lost_after_seconds
        if renewal.held is not None:
            self._held_at = sent_at
        if session is not self._session():
            return
        if self.host is not None:
            self.host.follow(answer)
        if session is None:
            if answer.standing is LeaseStanding.GONE:
                self._counted_lost()
            return
        self._reported_started |= started
        self._workers_of = session.epoch if renewal.workers_started else self._workers_of
        standing = answer.standing or LeaseStanding.GONE
        session.handle(Renewed(standing, answer.order, returned))
        self._stop_attempts(session, answer)
        session.handle(Fenced(on=False))  # after that: a lease that is over starts nothing more
        if renewal.announced:
            session.handle(_announced(renewal, answer))

    def _stop_attempts(self, session: LeaseSession, answer: RenewalAnswer) -> None:
        """Have attempts stopped whose end no longer counts: such work must not hold the host (P5)."""
        if answer.stops:
            session.handle(StopsOrdered(tuple(answer.stops)))
        keys = frozenset(AttemptKey(one.task_id, one.attempt) for one in answer.superseded)
        for key in keys - session.state.cancelled:
            log.warning(
                "attempt.superseded", extra={"task_id": key.task_id, "attempt": key.attempt}
            )
        if keys:
            session.handle(Superseded(keys, session.grant.cancel_grace_seconds))

    def _next_renewal(
        self, session: LeaseSession | None, now: float
    ) -> tuple[Renewal, set[AttemptKey], frozenset[AttemptKey]]:
        """Return the renewal and the attempts in it; no await, so ``acked_seq`` and held tasks agree."""
        if session is None:
            self._reported_started = set()
            over = None if self.host is None else self.host.over
            return Renewal(incarnation=self.incarnation, over=over), set(), frozenset()
        state = session.state
        self._reported_started &= state.held
        started = (
            set(state.started_before(time.time() - STARTED_AFTER_SECONDS)) - self._reported_started
        )
        returned = frozenset(state.returned)
        due = self._held_at is None or now - self._held_at >= HELD_SECONDS
        if due:  # PostgreSQL skips rows that another statement has locked
            started |= set(state.started_before(time.time() - STARTED_AFTER_SECONDS))
        ask = due or state.end is LeaseEnd.GONE
        renewal = Renewal(
            incarnation=self.incarnation,
            epoch=session.epoch,
            started=_attempts(started),
            returned=_attempts(returned),
            announced=_attempts(state.announced),
            cannot_start=session.workers.cannot_start,
            workers_started=self._workers_of != session.epoch and _proven(state),
            held=self._held(state) if due else None,
            running=_attempts(state.started_before(math.inf)) if ask else [],
        )
        return renewal, started, returned

    def _held(self, state: State) -> Held | None:
        """Return everything that must not be requeued; None while it is too much for one call.

        The journal may hold attempts of this epoch that its session has never seen (P5).
        """
        task_ids = {key.task_id for key in (*state.held, *self._reporter.unacknowledged())}
        if len(task_ids) > MAX_HELD:
            return None
        return Held(acked_seq=state.acked_seq, task_ids=sorted(task_ids))

    async def _watch_fence(self) -> None:
        """Fence the session once PostgreSQL may have given its tasks to another host (P4).

        This is early enough: PostgreSQL started its clock later, for the same number of seconds.
        """
        silent = 0.0
        while True:
            left = self.host_lost_after_seconds - silent
            await asyncio.sleep(min(left, FENCE_CHECK_SECONDS) if left > 0 else FENCE_CHECK_SECONDS)
            session = self._session()
            silent = time.monotonic() - self._acked_from
            if session is not None and silent >= self.host_lost_after_seconds:
                if not session.state.fenced:
                    log.error("lease.fenced", extra={"silent_seconds": round(silent, 1)})
                session.handle(Fenced(on=True))


def _proven(state: State) -> bool:
    """Return whether this host starts workers and what they run: a task has ended, or runs for some time."""
    began = state.started_before(time.time() - PROVEN_AFTER_SECONDS)
    return state.finished > 0 or any(True for _ in began)


def _attempts(keys: Iterable[AttemptKey]) -> list[TaskAttempt]:
    return [TaskAttempt(task_id=key.task_id, attempt=key.attempt) for key in keys]


def _announced(renewal: Renewal, answer: RenewalAnswer) -> Announced:
    keys = frozenset(AttemptKey(one.task_id, one.attempt) for one in renewal.announced)
    found = frozenset(answer.recorded)
    return Announced(keys, frozenset(key for key in keys if key.task_id in found))
