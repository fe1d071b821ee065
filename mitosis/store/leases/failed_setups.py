"""Finds task groups whose setup has failed on every host that may serve them (C-30, protocol P8).

Every host counts that has a write role, is a member and can hold the plan. One that drains, is out of
contact or has never started may serve it later, so the group waits for it. It also waits for one that is
tried again: after a pause, by a verb, with a new process of its agent or with another hook. None of these
happens to a failed setup by itself, so a closed group would wait for ever. ``on_setup_failure`` says which
groups end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.scheduling.binding import binding_mismatch
from mitosis.scheduling.host_failures import FailedHost
from mitosis.store.leases.membership import with_membership
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load

SQL = load("leases/failed_setups.sql")
RIPE_GROUP = SQL["ripe"] + SQL["one"]
RIPE_GROUPS = SQL["ripe"] + SQL["some"]
MEMBERS = with_membership(SQL["members"])
CHECKED_AT_ONCE = 10
"""A look checks so many task groups, chosen at random, so that it stays short on a large fleet."""


@dataclass(frozen=True, slots=True)
class _Ripe:
    number: int
    uuid: UUID
    plan: WorkerAllocationPlan


@dataclass(frozen=True, slots=True)
class _Members:
    """Hosts with the same cores."""

    cores: tuple[int, ...] | None
    """None: their agents have never said hello."""
    others: bool
    """Some of them have not failed."""
    failed: list[FailedHost]


async def failed_setups(connection: Connection, group_number: int) -> Sequence[FailedHost]:
    """Return every host that may serve the group, if it ends because its setup failed on all; else none."""
    number = {"group_number": group_number}
    found: Sequence[FailedHost] = ()
    for group in await fetch_all(connection, _Ripe, RIPE_GROUP, number):
        found = await _all_failed(connection, group)
    return found


async def groups_to_end(connection: Connection) -> Sequence[UUID]:
    """Return groups that end so, and whose workflow has not seen it; some of them if they are many."""
    groups = await fetch_all(connection, _Ripe, RIPE_GROUPS, {"limit": CHECKED_AT_ONCE})
    return [group.uuid for group in groups if await _all_failed(connection, group)]


async def _all_failed(connection: Connection, group: _Ripe) -> Sequence[FailedHost]:
    number = {"group_number": group.number}
    alike = await fetch_all(connection, _Members, MEMBERS, number)
    able = [hosts for hosts in alike if _fits(group.plan, hosts.cores)]
    if any(hosts.others for hosts in able):
        return ()
    return [host for hosts in able for host in hosts.failed]


def _fits(plan: WorkerAllocationPlan, cores: tuple[int, ...] | None) -> bool:
    return cores is None or binding_mismatch(plan.worker_count, plan.cpu_binding, cores) is None
