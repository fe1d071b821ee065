"""Explains hosts by the decision: every condition with its values, and the smallest change."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitosis.contracts.explain import Obstacle
from mitosis.scheduling.explain import HostChain, Step, explain_group
from mitosis.scheduling.predicates import BY_CODE, Scope
from mitosis.store.leases.fleet_snapshot import load_fleet
from mitosis.store.leases.no_host_reasons import Reason
from mitosis.store.leases.waiting import Waiting
from mitosis.store.pg.database import Connection
from mitosis.store.store import Store


@dataclass(frozen=True, slots=True)
class Decided:
    """What the decision says about the hosts of one task group."""

    obstacles: Mapping[int, Sequence[Obstacle]]
    """By the number of the host; only conditions on the host."""
    change: str | None
    """The smallest change after which one of them would serve it."""


async def decided_reasons(connection: Connection, store: Store, facts: Waiting) -> Decided:
    """Decide for the whole fleet, and return what this says about the hosts of a task group."""
    fleet = await load_fleet(connection, store, more_hosts=facts.hosts, more_groups=[facts.group])
    number = facts.group.number
    explained = await asyncio.to_thread(explain_group, fleet.snapshot, fleet.now, number)
    shown = {host.number for host in facts.hosts}
    smallest = explained.smallest
    return Decided(
        {chain.host: _obstacles(chain) for chain in explained.chains if chain.host in shown},
        None if smallest is None else smallest.line,
    )


def _obstacles(chain: HostChain) -> Sequence[Obstacle]:
    failed = (step for step in chain.obstacles if _is_of_host(step))
    return [Obstacle(code=step.code, line=step.sentence) for step in failed]


def _is_of_host(step: Step) -> bool:
    """Return whether it is about the host; what is about the task group is said once, in its own line."""
    predicate = BY_CODE.get(step.code)
    return predicate is None or predicate.scope is not Scope.GROUP


def reason_of(obstacles: Sequence[Obstacle]) -> Reason:
    """Return the first obstacle as the reason of a host without a lease of the task group."""
    if not obstacles:
        return Reason("free", "is free", False)
    first = obstacles[0]
    return Reason("busy" if first.code.startswith("held") else first.code, first.line)
