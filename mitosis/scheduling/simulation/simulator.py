"""The simulator: events in the order of their times, and rounds of the decision after what they change."""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from mitosis.scheduling.actions import Action, EndLease, Offer, Renew, Wake, WakeReason
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.facts import FOREVER
from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.scheduling.policy import MINUTE, Policy
from mitosis.scheduling.simulation.accounts import Accounts
from mitosis.scheduling.simulation.conservation import Conservation, Kept, check_offer
from mitosis.scheduling.simulation.entities import Run, SimGroup, SimHost
from mitosis.scheduling.simulation.events import Events
from mitosis.scheduling.simulation.fact_writer import FactWriter
from mitosis.scheduling.simulation.host_events import HostEvents
from mitosis.scheduling.simulation.lease_events import Leases
from mitosis.scheduling.simulation.sampling import Sampling
from mitosis.scheduling.simulation.workload import GroupRecord, TasksRecord, Workload
from mitosis.scheduling.snapshot import Snapshot
from mitosis.scheduling.wake import next_wake

Decision = Callable[[Snapshot, float], Sequence[Action]]
PACE_SECONDS = 2.0
"""Rounds are at least so far apart. Free hosts must be offered within 10 s, so more makes no sense."""
MANY_HOSTS = 200
PACE_OF_MANY_SECONDS = 10.0
"""The same for fleets of more hosts than that."""
ROUNDS_PER_SAMPLE = 30
"""The time between two samples, in times of the pace."""


def decide_in_turn(snapshot: Snapshot, now: float) -> Sequence[Action]:
    """Decide as ``decide`` does, but without the time of the next decision where one follows at once."""
    round_ = decided_round(snapshot, now)
    if any(type(action) is EndLease for action in round_.actions):
        return round_.actions
    wake = next_wake(round_)
    return round_.actions if wake is None else [*round_.actions, wake]


class Simulator:
    """One run of a workload under one policy."""

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        *,
        pace_seconds: float | None = None,
        checked: bool = False,
        decision: Decision = decide_in_turn,
    ) -> None:
        """Prepare a run.

        Args:
            workload: what happens.
            policy: the rules of the decision.
            pace_seconds: rounds are at least so far apart; None: as the number of hosts allows.
            checked: check after each round that no host is kept from work.
            decision: what decides.
        """
        self.workload = workload
        self.events = Events()
        self.facts = FactWriter(policy)
        self.accounts = Accounts()
        self.kept: list[Kept] = []
        """Hosts that a task group should have been given in a round, if that is checked."""
        many = len(workload.hosts) > MANY_HOSTS
        self._pace = pace_seconds or (PACE_OF_MANY_SECONDS if many else PACE_SECONDS)
        self._checked = checked
        self._decision = decision
        self._round_at = FOREVER
        self._last_round = -FOREVER
        self._due_at: set[float] = set()
        self._numbers: dict[str, int] = {}
        self._with_role: dict[int, Hosts] = {}
        hosts, groups = self.accounts.hosts, self.accounts.groups
        self.leases = Leases(self.events, self.facts, self.accounts, workload.failing_setups)
        self.leases.renewal_due = self._renew_at
        self.leases.tasks.became_idle = self._request_at
        self._host_events = HostEvents(self.events, self.facts, self.leases, groups)
        self._conservation = Conservation(policy, hosts, groups)
        self._sampling = Sampling(self.accounts, self._conservation)
        self._sample_seconds = ROUNDS_PER_SAMPLE * self._pace
        self._add_all()

    def run(self) -> Accounts:
        """Run until the end of the workload."""
        events, facts, until = self.events, self.facts, self.workload.until
        queue, next_begins = events.queue, self.leases.tasks.next_begins
        while queue and queue[0][0] <= until:
            events.now, _, what, argument = queue[0]
            if type(what) is Run:
                if what.is_gone:
                    events.remove_first()
                elif not next_begins(what, argument):
                    events.remove_first()
                    self.leases.task_ended(what, argument)
            else:
                events.remove_first()
                what(argument)  # type: ignore[operator]  # a function, see events.Event
            if facts.changed:
                facts.changed = False
                self._request(events.now)
        events.now = until
        self._sampling.finish(until)
        return self.accounts

    # --- rounds ----------------------------------------------------------------------------------------

    def _request(self, at: float) -> None:
        """Decide at this time, or as soon as the pace allows."""
        at = max(at, self._last_round + self._pace)
        if at < self._round_at:
            self._round_at = at
            self.events.at(at, self._round, at)

    def _renew_at(self, at: float) -> None:
        """Renew leases once a minute. What others may take is found at the time that a decision names."""
        self._request_at(math.ceil(at / MINUTE) * MINUTE)

    def _request_at(self, at: float) -> None:
        """Decide at a later time."""
        if at not in self._due_at:
            self._due_at.add(at)
            self.events.at(at, self._due)

    def _due(self, _: None) -> None:
        self._due_at.discard(self.events.now)
        self._request(self.events.now)

    def _round(self, due: float) -> None:
        """Decide and carry out until there is nothing to do, if this is the round that is due."""
        if due != self._round_at:
            return
        now = self.events.now
        self._round_at, self._last_round = FOREVER, now
        self.accounts.rounds += 1
        while True:
            self.facts.put(now)
            actions = self._decide(now)
            if not self._carry_out(actions):
                break
        self.facts.changed = False
        if actions and isinstance(actions[-1], Wake):
            self._request(actions[-1].at)
        if self._checked:
            self.kept += self._conservation.kept(now, self._sampling.waiting())

    def _decide(self, now: float) -> Sequence[Action]:
        began = time.perf_counter()
        actions = self._decision(self.facts.snapshot, now)
        took = time.perf_counter() - began
        self.accounts.decisions += 1
        self.accounts.decide_seconds += took
        self.accounts.longest_decide_seconds = max(self.accounts.longest_decide_seconds, took)
        return actions

    def _carry_out(self, actions: Sequence[Action]) -> bool:
        """Carry actions out; return whether another decision at this time finds more to do."""
        accounts, more = self.accounts, False
        for action in actions:
            match action:
                case Offer():
                    group, host = accounts.groups[action.group], accounts.hosts[action.host]
                    check_offer(group, host)
                    self.leases.offer(group, host, action)
                case EndLease():
                    self.leases.end(action)
                    more = True
                case Renew():
                    self.leases.renew(action)
                case Wake():
                    more |= action.reason is WakeReason.MORE
        return more

    # --- the workload ----------------------------------------------------------------------------------

    def _add_all(self) -> None:
        workload, at = self.workload, self.events.at
        by_name: dict[str, SimHost] = {}
        for number, record in enumerate(workload.hosts, start=1):
            bit = 1 << self.facts.snapshot.ordinal(number)
            serves = frozenset(self._number(name) for name in record.user_groups)
            host = by_name[record.name] = SimHost(number, bit, record, serves)
            self.accounts.hosts[number] = host
            for of in serves:
                self._with_role[of] = self._with_role.get(of, NONE) | bit
            self.facts.host(host, 0.0)
        batches: dict[str, deque[TasksRecord]] = defaultdict(deque)
        for tasks in sorted(workload.tasks, key=lambda tasks: tasks.at):
            batches[tasks.group].append(tasks)
        for number, group in enumerate(workload.groups, start=1):
            made = self._group(number, group, batches[group.name], by_name)
            at(group.at, self._create, made)
        for away in workload.away:
            at(away.at, self._host_events.leaves, (by_name[away.host], away))
        for drain in workload.drains:
            at(drain.at, self._host_events.drains, (by_name[drain.host], drain))
        at(self._sample_seconds, self._sample)

    def _number(self, user_group: str) -> int:
        return self._numbers.setdefault(user_group, len(self._numbers) + 1)

    def _group(
        self,
        number: int,
        record: GroupRecord,
        batches: deque[TasksRecord],
        hosts: dict[str, SimHost],
    ) -> SimGroup:
        members = (1 << len(hosts)) - 1
        if record.hosts is not None:
            members = NONE
            for name in record.hosts:
                members |= hosts[name].bit
        user_group = self._number(record.user_group)
        with_role = self._with_role.get(user_group, NONE)
        return SimGroup(number, record, user_group, members, record.workers, batches, with_role)

    def _create(self, group: SimGroup) -> None:
        self.accounts.groups[group.number] = self.accounts.open[group.number] = group
        self.facts.group(group)
        for tasks in group.batches:
            self.events.at(max(tasks.at, group.record.at), self.leases.tasks.submit, (group, tasks))
        last = group.batches[-1].at if group.batches else group.record.at
        closed_at = group.record.closed_at
        self.events.at(max(last, closed_at or 0.0, group.record.at), self._close, group)

    def _close(self, group: SimGroup) -> None:
        group.is_closed = True
        self.leases.settle_if_done(group)

    def _sample(self, _: None) -> None:
        self._sampling.sample(self.events.now)
        self.events.after(self._sample_seconds, self._sample)
