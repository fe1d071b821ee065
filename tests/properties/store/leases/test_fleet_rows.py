"""Rows that came one change after another lead to the facts to which the same rows lead at once."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.decide import decide
from mitosis.scheduling.facts import Freed, Progress
from mitosis.scheduling.policy import Policy
from mitosis.store.leases.fleet import GroupRow, HostRow
from mitosis.store.leases.fleet_rows import FleetRows
from mitosis.store.leases.kept_check import differing_hosts
from tests.support.examples import examples
from tests.support.host_facts import NO_LEASE, NOW, failure, group, host, lease
from tests.support.kept_facts import facts

NUMBERS = st.integers(1, 3)
HOST_FACTS: dict[str, st.SearchStrategy[Any]] = {
    "tags": st.frozensets(st.sampled_from(["gpu", "x86"])),
    "draining": st.booleans(),
    "last_contact_at": st.sampled_from([NOW - 1.0, NOW - 60.0]),
    "serves": st.frozensets(st.sampled_from([1, 2])),
    "warm": st.frozensets(NUMBERS),
    "unclean": st.frozensets(NUMBERS),
    "failures": NUMBERS.map(lambda number: (failure(group_number=number),)) | st.just(()),
    "freed_for": NUMBERS.map(lambda number: (Freed(number, NOW - 10.0),)) | st.just(()),
}
GROUP_FACTS: dict[str, st.SearchStrategy[Any]] = {
    "priority": st.integers(0, 1),
    "tags": st.frozensets(st.sampled_from(["gpu", "x86"])),
    "added": st.frozensets(NUMBERS),
    "removed": st.frozensets(NUMBERS),
    "ready": st.integers(0, 3),
    "goes_on": st.booleans(),
    "max_managers": st.none() | st.integers(1, 2),
    "hostless_since": st.none() | st.just(NOW - 100.0),
}
LEASE_FACTS: dict[str, st.SearchStrategy[Any]] = {
    "lease_state": st.sampled_from(list(LeaseState)[:3]),
    "progress": st.none() | st.sampled_from(Progress),
    "empty_since": st.none() | st.just(NOW - 300.0),
    "affinity_until": st.none() | st.sampled_from([NOW - 1.0, NOW + 1.0]),
    "lease_for": st.none() | NUMBERS,
}


class Changes(RuleBasedStateMachine):
    """Hosts are read where they have changed, task groups each time; a lease may be without its group."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = FleetRows(Policy(), range(1, 4))
        self.hosts: dict[int, HostRow] = {}
        self.groups: dict[int, GroupRow] = {}
        self.epoch = 0

    def change(self, *hosts: int, leases: tuple[HostRow, ...] = ()) -> None:
        there = [self.hosts[number] for number in hosts if number in self.hosts]
        gone = [number for number in hosts if number not in self.hosts]
        groups = [self.groups[number] for number in sorted(self.groups)]
        self.rows.change(NOW, there, groups, gone=gone, leases=leases)

    @rule(number=NUMBERS, changed=st.fixed_dictionaries({}, optional=HOST_FACTS))
    def put_host(self, number: int, changed: dict[str, Any]) -> None:
        known = self.hosts.get(number)
        self.hosts[number] = host(number, **changed) if known is None else replace(known, **changed)
        self.change(number)

    @rule(number=NUMBERS)
    def drop_host(self, number: int) -> None:
        self.hosts.pop(number, None)
        self.change(number)

    @rule(number=NUMBERS, changed=st.fixed_dictionaries({}, optional=GROUP_FACTS))
    def put_group(self, number: int, changed: dict[str, Any]) -> None:
        known = self.groups.get(number)
        made = group(number, **changed) if known is None else replace(known, **changed)
        self.groups[number] = replace(made, name=f"g{number}", unfinished=made.ready)
        self.change()

    @rule(number=NUMBERS)
    def drop_group(self, number: int) -> None:
        self.groups.pop(number, None)
        self.change()

    @rule(number=NUMBERS, of=NUMBERS, changed=st.fixed_dictionaries({}, optional=LEASE_FACTS))
    def lease(self, number: int, of: int, changed: dict[str, Any]) -> None:
        if number in self.hosts:
            self.epoch += 1
            of_lease = {**NO_LEASE, **lease(group_number=of, name=f"g{of}"), **changed}
            of_lease["lease_number"] = self.epoch
            self.hosts[number] = replace(self.hosts[number], **of_lease)
            self.change(number)

    @rule(number=NUMBERS)
    def end_lease(self, number: int) -> None:
        if number in self.hosts:
            self.hosts[number] = replace(self.hosts[number], **NO_LEASE)
            self.change(number)

    @rule(number=NUMBERS, progress=st.sampled_from(Progress), empty=st.booleans())
    def make_progress(self, number: int, progress: Progress, *, empty: bool) -> None:
        known = self.hosts.get(number)
        if known is not None and known.lease_number is not None:
            since = NOW - 200.0 if empty else None
            self.hosts[number] = replace(known, progress=progress, empty_since=since)
            self.change(leases=(self.hosts[number],))

    @invariant()
    def the_facts_are_those_of_the_rows(self) -> None:
        fresh = FleetRows(Policy(), range(1, 4))
        hosts = [self.hosts[number] for number in sorted(self.hosts)]
        fresh.change(NOW, hosts, [self.groups[number] for number in sorted(self.groups)])
        assert facts(self.rows.snapshot, NOW) == facts(fresh.snapshot, NOW)
        assert decide(self.rows.snapshot, NOW) == decide(fresh.snapshot, NOW)
        assert self.rows.restless == fresh.restless
        assert not differing_hosts(self.rows, fresh, NOW)

    @invariant()
    def a_copy_has_the_hosts_and_groups_that_it_is_given(self) -> None:
        hosts = [self.hosts[number] for number in sorted(self.hosts)]
        groups = [self.groups[number] for number in sorted(self.groups)]
        there = [one for one in hosts if one.lease_number or one.last_contact_at == NOW - 1.0]
        holders = {one.lease_group for one in there}
        rows, fresh = FleetRows(Policy(), range(1, 4)), FleetRows(Policy(), range(1, 4))
        rows.change(NOW, there, [one for one in groups if one.ready or one.number in holders])
        before = facts(rows.snapshot, NOW)
        fresh.change(NOW, hosts, groups)
        copied = rows.copied(NOW, hosts, groups)
        assert facts(copied, NOW) == facts(fresh.snapshot, NOW)
        assert decide(copied, NOW) == decide(fresh.snapshot, NOW)
        assert facts(rows.snapshot, NOW) == before


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=examples(20),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[*HealthCheck],
)
