"""What happens to hosts: they are out of contact for some time, and they drain."""

from mitosis.contracts.liveness import HOST_LOST_AFTER
from mitosis.scheduling.simulation.entities import SimGroup, SimHost
from mitosis.scheduling.simulation.events import Events
from mitosis.scheduling.simulation.fact_writer import FactWriter
from mitosis.scheduling.simulation.lease_events import Leases
from mitosis.scheduling.simulation.workload import AwayRecord, DrainRecord


class HostEvents:
    """Takes contact away from hosts and gives it back; begins and ends drains."""

    def __init__(
        self, events: Events, facts: FactWriter, leases: Leases, groups: dict[int, SimGroup]
    ) -> None:
        self._events = events
        self._facts = facts
        self._leases = leases
        self._groups = groups

    def leaves(self, pair: tuple[SimHost, AwayRecord]) -> None:
        """Let a host fall silent: it goes on with its tasks and claims nothing."""
        host, away = pair
        if host.away:
            return
        host.away = True
        host.absences += 1
        suspect = self._facts.snapshot.policy.suspect_after_seconds
        self._events.after(suspect, self._suspected, (host, host.absences))
        self._events.after(HOST_LOST_AFTER.total_seconds(), self._lost, (host, host.absences))
        self._events.at(max(away.until, self._events.now), self._returns, host)

    def drains(self, pair: tuple[SimHost, DrainRecord]) -> None:
        """Begin a drain: the host finishes what it runs, and tears down what is prepared on it."""
        host, drain = pair
        if host.draining:
            return
        host.draining = True
        self._facts.host(host, self._events.now)
        if host.run is None:
            self._clean_all(host)
        self._events.at(max(drain.until, self._events.now), self._resumes, host)

    def _suspected(self, which: tuple[SimHost, int]) -> None:
        host, absence = which
        if host.away and host.absences == absence:
            host.in_contact = False
            self._put(host)

    def _lost(self, which: tuple[SimHost, int]) -> None:
        host, absence = which
        if not host.away or host.absences != absence:
            return
        host.lost = True
        if host.run is not None:
            self._leases.lose(host.run)

    def _returns(self, host: SimHost) -> None:
        host.away, host.in_contact = False, True
        was_lost, host.lost = host.lost, False
        self._put(host)
        if was_lost:
            self._clean_all(host)
        elif host.run is not None:
            self._leases.tasks.begin(host.run)

    def _resumes(self, host: SimHost) -> None:
        host.draining = False
        self._facts.host(host, self._events.now)

    def _put(self, host: SimHost) -> None:
        self._facts.host(host, self._events.now)
        if host.run is not None:
            self._facts.progress(host.run)

    def _clean_all(self, host: SimHost) -> None:
        for number in sorted(host.warm):
            self._leases.clean(host, self._groups[number])
