"""Short fixed stories for rules that few random sequences reach, judged by the same oracle as these."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.lease_settings import LeaseTerms
from tests.support.campaigns import world
from tests.support.fleet_machine.machine import Machine
from tests.support.fleet_machine.oracle import KnownGroup, KnownHost

IDLE = 200.0
"""Longer than the threshold, with what the clocks of a test differ by."""


async def host(machine: Machine, **roles: str) -> KnownHost:
    found = await machine.create_host(frozenset(), 2, roles or {"alice": "write", "bob": "write"})
    await machine.until_rest(takes=True)
    return machine.oracle.hosts[found]


async def group(machine: Machine, name: str, tasks: int = 1, **facts: Any) -> KnownGroup:
    usual: dict[str, Any] = {
        "id": UUID(int=0),
        "created": 0,
        "user_group": "alice",
        "priority": 0,
        "named": False,
        "tags": frozenset(),
        "match": "all",
        "workers": 1,
        "exclusive": False,
        "max_managers": None,
    }
    known = KnownGroup(name=name, **{**usual, **facts})
    await machine.create_group(known)
    await work(machine, known, tasks)
    return known


async def work(machine: Machine, known: KnownGroup, tasks: int = 1) -> None:
    await machine.submit(known, tasks)
    await machine.until_rest(takes=True)


async def finish(machine: Machine) -> None:
    for one in machine.oracle.hosts.values():
        await machine.finish(one, 9)
    await machine.until_rest(takes=True)


async def later(machine: Machine, seconds: float = IDLE) -> None:
    await machine.pass_time(seconds)
    await machine.until_rest(takes=True)


async def a_host_with_a_read_role_only(machine: Machine) -> None:
    await host(machine, alice="write", bob="read")
    await group(machine, "of-bob", user_group="bob")


async def priority_before_age(machine: Machine) -> None:
    await group(machine, "old")
    await group(machine, "high", priority=100)
    await host(machine)


async def an_idle_host_goes_to_work(machine: Machine) -> None:
    await host(machine)
    await group(machine, "idle")
    await finish(machine)
    await group(machine, "waits")
    await later(machine)


async def a_busy_host_is_not_given_for_its_environment(machine: Machine) -> None:
    await host(machine)
    first = await group(machine, "first")
    await finish(machine)
    await group(machine, "second")
    await later(machine)
    await host(machine)
    await work(machine, first)


async def hosts_that_come_at_once_go_to_the_highest_priority(machine: Machine) -> None:
    """After its first lease, too, a task group goes before those of lower priority."""
    await group(machine, "low", 6)
    await group(machine, "middle", 6, priority=50)
    await group(machine, "high", 6, priority=100)
    for _ in range(4):
        await machine.create_host(frozenset(), 2, {"alice": "write"})
    await machine.until_rest(takes=True)


async def a_busy_host_is_offered_to_no_other(machine: Machine) -> None:
    await host(machine)
    await group(machine, "works", 9)
    await group(machine, "waits", priority=100)
    await host(machine)


async def a_host_is_taken_from_work_so_often_in_an_hour(machine: Machine) -> None:
    terms = LeaseTerms(lease_duration=600.0, longest_lease=600.0)
    machine.w.store = replace(machine.w.store, lease_terms=terms, moves_per_hour=1)
    machine.oracle.affinity_seconds, machine.oracle.moves_per_hour = 600.0, 1
    await host(machine)
    low = await group(machine, "low", 40, priority=-100)
    middle = await group(machine, "middle", 40)
    for name in ("high", "highest"):
        await later(machine, 700.0)
        await finish(machine)
        await group(machine, name, 40, priority=100)
    await later(machine, 700.0)
    facts = await machine.facts()
    held = [lease.group for lease in facts.leases.values() if lease.lives]
    assert held == [middle.id], f"it was taken from {low.name} once"


SCENES = (
    hosts_that_come_at_once_go_to_the_highest_priority,
    a_busy_host_is_offered_to_no_other,
    a_host_is_taken_from_work_so_often_in_an_hour,
    a_host_with_a_read_role_only,
    priority_before_age,
    an_idle_host_goes_to_work,
    a_busy_host_is_not_given_for_its_environment,
)


@pytest.mark.spec("C-31", "C-35", "C-36")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_each_round_of_a_story_keeps_its_word(
    database: str, scene: Callable[[Machine], Awaitable[None]]
) -> None:
    async with world(database) as w:
        machine = Machine(w)
        await machine.begin()
        await scene(machine)
