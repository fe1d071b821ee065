"""What happens to leases: an offer is taken and prepared, a lease ends, an environment is torn down."""

from collections.abc import Callable, Iterator

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import EndLease, Offer, Renew
from mitosis.scheduling.costs import affinity_seconds
from mitosis.scheduling.facts import Failure, Freed
from mitosis.scheduling.host_sets import Hosts, ordinals
from mitosis.scheduling.simulation.accounts import Accounts
from mitosis.scheduling.simulation.entities import Run, SimGroup, SimHost
from mitosis.scheduling.simulation.events import Events
from mitosis.scheduling.simulation.fact_writer import FactWriter
from mitosis.scheduling.simulation.task_events import TaskEvents


class Leases:
    """Carries out what was decided, and what follows from it."""

    def __init__(
        self, events: Events, facts: FactWriter, accounts: Accounts, failing_setups: float
    ) -> None:
        self._events = events
        self._facts = facts
        self._accounts = accounts
        self._failing_setups = failing_setups
        self.tasks = TaskEvents(events, facts, accounts)
        self.runs: dict[int, Run] = {}
        """Leases that have not ended, by number."""
        self.renewal_due: Callable[[float], None] = lambda _: None
        """Called with the end of each affinity."""
        self._last = 0

    # --- actions of the decision -----------------------------------------------------------------------

    def offer(self, group: SimGroup, host: SimHost, action: Offer) -> None:
        """Let a host take an offer and prepare it: what others left there is torn down first."""
        now = self._events.now
        self._last += 1
        snapshot = self._facts.snapshot
        state = snapshot.groups[group.number]
        until = now + affinity_seconds(state.fact, state.work, snapshot.policy)
        run = Run(self._last, group, host, now, until, group.workers)
        self.runs[run.number] = run
        group.runs.add(run)
        host.run = run
        if host.freed_for:
            host.freed_for.clear()
            self._facts.host(host, now)
        self._accounts.offered(group, host, action.freed, now)
        if group.number in host.warm:
            run.is_prepared = True
            self._facts.lease(run)
            self.tasks.begin(run)
        else:
            self._facts.lease(run)
            self._prepare(run)
        self.renewal_due(until)

    def renew(self, action: Renew) -> None:
        """Extend a lease."""
        run = self.runs[action.lease]
        run.affinity_until, run.renewed = action.until, True
        self._accounts.renewals += 1
        self._facts.lease(run)
        self.renewal_due(action.until)

    def end(self, action: EndLease) -> None:
        """End a lease as decided."""
        run = self.runs[action.lease]
        self._accounts.ends[action.reason] += 1
        if action.reason.is_contested:
            run.host.moved_at.append(self._events.now)
            self._facts.host(run.host, self._events.now)
        self._stop(run, action.for_group)

    # --- what follows ----------------------------------------------------------------------------------

    def task_ended(self, run: Run, seconds: float) -> None:
        """End a task of a lease after which none begins."""
        self.tasks.ended(run, seconds)
        if run.state is LeaseState.ENDING:
            run.drain_from.append(self._events.now)
            if not run.running:
                self._over(run)
        else:
            self.tasks.begin(run)
        if not run.group.unfinished:
            self._facts.touched.add(run.group)
            self.settle_if_done(run.group)

    def settle_if_done(self, group: SimGroup) -> None:
        """Settle a task group that is closed and has no unfinished task: its hosts clean up."""
        if not group.is_closed or group.unfinished or group.is_settled:
            return
        group.is_settled = True
        group.settled_at = self._events.now
        self._accounts.settled(group)
        self._facts.group(group)
        for run in sorted(group.runs, key=lambda run: run.number):
            if run.state is not LeaseState.ENDING:
                self._stop(run, None)
        self._facts.put_all()
        for host in self._hosts(self._facts.snapshot.sets.get("warm", group.number)):
            if host.run is None and not host.lost:
                self.clean(host, group)
        self._forget_if_clean(group)

    def lose(self, run: Run) -> None:
        """End the lease of a host that is lost; what ran there is ready again."""
        group, host = run.group, run.host
        lost = [event[3] for event in sorted(self._events.queue) if event[2] is run]
        run.is_gone = True
        self._remove(run)
        host.warm.add(group.number)
        self.tasks.give_back(group, lost)
        self.settle_if_done(group)
        self._forget_if_clean(group)

    def clean(self, host: SimHost, group: SimGroup) -> None:
        """Tear an environment down."""
        host.warm.discard(group.number)
        host.unclean.add(group.number)
        group.cleaning += 1
        self._facts.host(host, self._events.now)
        seconds = group.record.teardown_seconds * host.record.factor
        self._events.after(seconds, self._cleaned, (host, group))

    def _prepare(self, run: Run) -> None:
        host, group = run.host, run.group
        others = [self._accounts.groups[number] for number in sorted(host.warm)]
        if others:
            host.warm.clear()
            self._facts.host(host, self._events.now)
        after = 0.0
        for other in others:
            after += other.record.teardown_seconds * host.record.factor
            self._events.after(after, self._torn_down, (host, other))
        after += group.record.setup_seconds * host.record.factor
        self._events.after(after, self._prepared, run)

    def _prepared(self, run: Run) -> None:
        if run.is_gone:
            return
        host, group = run.host, run.group
        run.is_prepared = True
        seconds = group.record.setup_seconds * host.record.factor
        self._accounts.set_up(seconds)
        group.setups += 1
        group.setup_seconds += seconds
        self._measured(group)
        if self._setup_fails(run):
            host.failures[group.number] = Failure(
                group=group.number,
                group_name=group.record.name,
                kind=HostFailureKind.SETUP_FAILED,
                reason="exit code 1",
            )
            group.failed_on |= host.bit
            host.warm.add(group.number)
            self._remove(run)
            self.clean(host, group)
            return
        host.warm.add(group.number)
        self._facts.host(host, self._events.now)
        if run.state is LeaseState.ENDING:
            run.drain_from.clear()
            self._over(run)
        else:
            self.tasks.begin(run)

    def _setup_fails(self, run: Run) -> bool:
        """Return whether setup fails on this host for this task group: the same under every policy."""
        mixed = (run.group.number * 2_654_435_761 + run.host.number * 40_503) & 0xFFFF
        return mixed < self._failing_setups * 0x10000

    def _stop(self, run: Run, for_group: int | None) -> None:
        """Let a lease begin nothing more; it is over when its tasks have ended."""
        now = self._events.now
        run.state, run.for_group, run.ending_since = LeaseState.ENDING, for_group, now
        run.drain_from = [now] * (run.workers - run.running)
        self._facts.lease(run)
        if for_group is not None:
            self._facts.touched.add(self._accounts.groups[for_group])
        if run.is_prepared and not run.running:
            self._over(run)

    def _over(self, run: Run) -> None:
        now, host, group = self._events.now, run.host, run.group
        self._accounts.drained(run, now)
        self._remove(run)
        if group.is_settled or host.draining:
            self.clean(host, group)
        if run.for_group is not None:
            host.freed_for.append(Freed(run.for_group, now))
        self._facts.host(host, now)
        self._forget_if_clean(group)

    def _remove(self, run: Run) -> None:
        run.ended_at = self._events.now
        self._accounts.leased_seconds += run.ended_at - run.taken_at
        del self.runs[run.number]
        run.group.runs.discard(run)
        run.host.run = None
        self._facts.lease_is_gone(run)

    def _torn_down(self, pair: tuple[SimHost, SimGroup]) -> None:
        host, group = pair
        seconds = group.record.teardown_seconds * host.record.factor
        self._accounts.teardown_seconds += seconds
        group.teardowns += 1
        group.teardown_seconds += seconds
        self._measured(group)

    def _measured(self, group: SimGroup) -> None:
        """Let the next round see durations, and come soon: they are part of idle thresholds."""
        self._facts.touched.add(group)
        self._facts.changed = True

    def _cleaned(self, pair: tuple[SimHost, SimGroup]) -> None:
        self._torn_down(pair)
        host, group = pair
        host.unclean.discard(group.number)
        group.cleaning -= 1
        self._facts.host(host, self._events.now)
        self._forget_if_clean(group)

    def _forget_if_clean(self, group: SimGroup) -> None:
        """Remove a task group that has settled when no host has anything of it."""
        if not group.is_settled or group.runs or group.cleaning:
            return
        if group.number not in self._facts.snapshot.groups:
            return
        self._facts.put_all()
        for host in self._hosts(group.failed_on):
            del host.failures[group.number]
            self._facts.host(host, self._events.now)
        self._facts.snapshot.drop_group(group.number)

    def _hosts(self, hosts: Hosts) -> Iterator[SimHost]:
        snapshot = self._facts.snapshot
        for ordinal in ordinals(hosts):
            yield self._accounts.hosts[snapshot.host_at(ordinal).fact.number]
