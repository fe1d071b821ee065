"""The session of a worker service: the attempts of all its task groups, until the process ends."""

import asyncio
from collections.abc import Callable, Collection

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import LeaseStanding
from mitosis.execution.events import Renewed, Report
from mitosis.execution.reporter import EVERY
from mitosis.execution.session import Session, SessionParts, SessionTerms
from mitosis.worker_service.attempts import Groups


class ServiceSession(Session):
    """Runs what the service claims. Its reports go to the reporter by the number of their task group."""

    def __init__(self, slots: int, parts: SessionParts, groups: Groups) -> None:
        """Make the state; nothing runs before :meth:`start`.

        Args:
            slots: so many attempts run at the same time.
            parts: its collaborators.
            groups: knows the task group of each attempt.
        """
        terms = SessionTerms(epoch=EVERY, worker_count=slots, prefetch=0)
        super().__init__(terms, parts)
        self._groups = groups

    @property
    def held(self) -> Collection[AttemptKey]:
        """The attempts that run, and those whose reports have no answer."""
        return self.state.held

    def _report(self, report: Report) -> None:
        for number, of_group in self._groups.by_number(report.reports):
            self._parts.reporter.add(number, of_group, report.urgent)


class Returns:
    """Answers the session in the place of a renewal: a service returns tasks by its next claim or goodbye."""

    def __init__(self) -> None:
        """Answer nothing before :meth:`connect`."""
        self._session: Session | None = None
        self._cannot_start: Callable[[str], None]

    def connect(self, session: Session, cannot_start: Callable[[str], None]) -> None:
        """Answer this session; ``cannot_start`` is called with the reason if no slot can be started."""
        self._session, self._cannot_start = session, cannot_start

    def renew_now(self) -> None:
        """Acknowledge soon what the session has returned."""
        asyncio.get_running_loop().call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        if self._session is None:
            return
        if self._session.workers.cannot_start is not None:
            self._cannot_start(self._session.workers.cannot_start)
        returned = frozenset(self._session.state.returned)
        if returned:
            self._session.handle(Renewed(LeaseStanding.ACTIVE, returned=returned))
