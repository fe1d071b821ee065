"""Random verbs, losses and time over the real store: whatever happens, each round keeps its word.

After every step rounds follow until nothing changes, and :mod:`tests.support.fleet_machine` judges them by
plain rules: no host with two leases, none beyond ``max_managers``, no offer that a rule forbids, no end of a
lease without a reason, and no host that stays free, idle or beyond its affinity beside work that it may do.
"""

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from mitosis.contracts.errors import InvalidRequest
from tests.support.campaigns import world
from tests.support.fleet_machine.machine import Machine, emptied
from tests.support.fleet_machine.oracle import KnownGroup, KnownHost

CAMPAIGN = os.environ.get("MITOSIS_CAMPAIGN_EXAMPLES")
"""So many random sequences; the suite has a few, always the same."""
EXAMPLES = int(CAMPAIGN or "6")
STEPS = 20
TAGS = st.frozensets(st.sampled_from(["gpu", "x86"]))
GROUPS = st.builds(
    KnownGroup,
    id=st.just(UUID(int=0)),
    name=st.just(""),
    created=st.just(0),
    user_group=st.sampled_from(["alice", "bob"]),
    priority=st.sampled_from([-100, 0, 0, 0, 100]),
    named=st.sampled_from([False, False, True]),
    tags=TAGS,
    match=st.sampled_from(["all", "any"]),
    workers=st.sampled_from([1, 1, 2]),
    exclusive=st.booleans(),
    max_managers=st.sampled_from([None, None, 1, 2]),
    idle_seconds=st.sampled_from([None, None, 60.0]),
)
ROLES = st.fixed_dictionaries(
    {"alice": st.sampled_from(["write", "admin"])},
    optional={"bob": st.sampled_from(["write", "read", "write"])},
)


class Fleet(RuleBasedStateMachine):
    """The steps. Each is followed by rounds until nothing changes."""

    groups: Bundle[KnownGroup] = Bundle("groups")
    hosts: Bundle[KnownHost] = Bundle("hosts")

    def __init__(self, runner: asyncio.Runner, machine: Machine) -> None:
        super().__init__()
        self.runner, self.machine = runner, machine

    def does(self, step: Awaitable[Any], *, takes: bool = True) -> Any:
        async def both() -> Any:
            done = await step
            await self.machine.until_rest(takes=takes)
            return done

        return self.runner.run(both())

    @initialize(target=hosts, count=st.integers(1, 3), tags=TAGS, cores=st.integers(1, 2))
    def begin(self, count: int, tags: frozenset[str], cores: int) -> Any:
        async def hosts() -> list[KnownHost]:
            await self.machine.begin()
            roles = {"alice": "write", "bob": "write"}
            made = [await self.machine.create_host(tags, cores, roles) for _ in range(count)]
            return [self.machine.oracle.hosts[host] for host in made]

        return multiple(*self.does(hosts()))

    @rule(target=hosts, tags=TAGS, cores=st.integers(1, 2), roles=ROLES)
    def new_host(self, tags: frozenset[str], cores: int, roles: dict[str, str]) -> Any:
        if len(self.machine.oracle.hosts) >= 5:
            return multiple()
        host = self.does(self.machine.create_host(tags, cores, roles))
        return self.machine.oracle.hosts[host]

    @rule(target=groups, group=GROUPS, count=st.integers(0, 12))
    def new_group(self, group: KnownGroup, count: int) -> Any:
        if len(self.machine.oracle.groups) >= 5:
            return multiple()
        group.name = f"g{len(self.machine.oracle.groups)}"

        async def create() -> None:
            with suppress(InvalidRequest):
                await self.machine.create_group(group)
            if count and group.id.int:
                await self.machine.submit(group, count)

        self.does(create())
        return group if group.id.int else multiple()

    @rule(group=groups, count=st.integers(1, 12), takes=st.booleans())
    def submit(self, group: KnownGroup, count: int, *, takes: bool) -> None:
        self.does(self.machine.submit(group, count), takes=takes)

    @rule(group=groups, host=hosts, adds=st.booleans())
    def choose(self, group: KnownGroup, host: KnownHost, *, adds: bool) -> None:
        verb = self.machine.add if adds else self.machine.remove
        self.does(verb(group, host))

    @rule(group=groups)
    def refresh(self, group: KnownGroup) -> None:
        self.does(self.machine.refresh(group))

    @rule(group=groups, tags=TAGS)
    def retag_group(self, group: KnownGroup, tags: frozenset[str]) -> None:
        self.does(self.machine.retag_group(group, tags))

    @rule(host=hosts, tags=TAGS)
    def retag_host(self, host: KnownHost, tags: frozenset[str]) -> None:
        self.does(self.machine.retag_host(host, tags))

    @rule(
        host=hosts, group=st.sampled_from(["alice", "bob"]), role=st.sampled_from(["read", "write"])
    )
    def give_role(self, host: KnownHost, group: str, role: str) -> None:
        self.does(self.machine.set_role(host, group, role))

    @rule(group=groups, priority=st.sampled_from([-100, 0, 100]))
    def set_priority(self, group: KnownGroup, priority: int) -> None:
        self.does(self.machine.update(group, priority=priority))

    @rule(group=groups, most=st.sampled_from([None, 1, 2]))
    def set_max_managers(self, group: KnownGroup, most: int | None) -> None:
        self.does(self.machine.update(group, max_managers=most))

    @rule(host=hosts, drains=st.booleans(), now=st.booleans())
    def drain_or_resume(self, host: KnownHost, *, drains: bool, now: bool) -> None:
        machine = self.machine
        self.does(machine.drain(host, now=now) if drains else machine.resume(host))

    @rule(host=hosts)
    def fail_next_setup(self, host: KnownHost) -> None:
        if host.id in self.machine.hosts:
            self.machine.hosts[host.id].fails_setup = True

    @rule(host=hosts, count=st.integers(1, 3))
    def finish(self, host: KnownHost, count: int) -> None:
        self.does(self.machine.finish(host, count))

    @rule(group=groups)
    def finish_all(self, group: KnownGroup) -> None:
        """Every host works until the task group has nothing left."""

        async def work() -> None:
            for _ in range(4):
                for host in list(self.machine.oracle.hosts.values()):
                    await self.machine.finish(host, 2)
                await self.machine.until_rest(takes=True)

        self.runner.run(work())

    @rule(host=hosts)
    def lose(self, host: KnownHost) -> None:
        self.does(self.machine.lose(host))

    @rule(host=hosts, restarted=st.booleans())
    def come_back(self, host: KnownHost, *, restarted: bool) -> None:
        self.does(self.machine.come_back(host, restarted=restarted))

    @rule(host=hosts)
    def delete_host(self, host: KnownHost) -> None:
        self.does(self.machine.delete_host(host))

    @rule(
        group=groups,
        how=st.sampled_from(["close", "close", "reopen", "cancel", "complete", "delete"]),
    )
    def end(self, group: KnownGroup, how: str) -> None:
        self.does(self.machine.end_group(group, how))

    @rule(seconds=st.sampled_from([15.0, 70.0, 200.0, 320.0, 700.0, 3700.0]))
    def time_passes(self, seconds: float) -> None:
        self.does(self.machine.pass_time(seconds))


@pytest.mark.spec("C-31", "C-32", "C-35", "C-36", "S000-158", "S002-174")
def test_whatever_happens_each_round_keeps_its_word(database: str) -> None:
    with asyncio.Runner() as runner:
        opened = world(database)
        w = runner.run(opened.__aenter__())

        class OnThisStore(Fleet):
            def __init__(self) -> None:
                super().__init__(runner, Machine(w))
                runner.run(emptied(w))

        try:
            run_state_machine_as_test(
                OnThisStore,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=STEPS,
                    deadline=None,
                    database=None,
                    derandomize=CAMPAIGN is None,
                    phases=[Phase.generate],  # to shrink a failure would take minutes
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(opened.__aexit__(None, None, None))
