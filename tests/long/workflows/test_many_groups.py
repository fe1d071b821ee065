"""Temporal's data is lost with 5,000 open task groups: lost hosts are noticed as if there were none."""

import time
from uuid import UUID

import pytest

from mitosis.contracts.temporal_names import task_group_workflow_id
from tests.support.campaigns import Host, World, world
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.waiting import wait_until_async

GROUPS = 5_000
WITHIN_SECONDS = 30.0
LATER_SECONDS = 12.0
"""After so long a second host is lost: the workflows of the groups are being started then."""


ALIVE = (
    "UPDATE leases SET alive_until = now() + make_interval(secs => %s)"
    " WHERE manager_id = (SELECT id FROM managers WHERE uuid = %s)"
)


async def leased_host(w: World, name: str, alive_seconds: float) -> Host:
    """A silent host with a lease that lasts for so long."""
    group = await w.group(name, max_managers=1)
    await w.submit(group, 1)
    host = await w.leased_host(group, machine=name)
    await w.rows(ALIVE, alive_seconds, host.manager_id)
    return host


async def add_groups(w: World) -> UUID:
    """Many open groups; return one of them, the last."""
    await w.rows(
        "INSERT INTO task_groups (name, user_group_id, creator_id, worker_allocation_plan)"
        " SELECT 'g' || i, g.user_group_id, g.creator_id, g.worker_allocation_plan"
        " FROM generate_series(1, %s) AS i, (SELECT * FROM task_groups LIMIT 1) AS g",
        GROUPS,
    )
    await w.rows(
        "INSERT INTO group_live (group_id) SELECT id FROM task_groups WHERE name ~ '^g[0-9]'"
    )
    last: UUID = await w.value("SELECT uuid FROM task_groups ORDER BY id DESC LIMIT 1")
    return last


async def idle_host(w: World) -> Host:
    """A host without a lease, with an environment, and silent for long: only reconcile knows of it."""
    group = await w.group("idle", max_managers=1)
    await w.submit(group, 1)
    host = await w.leased_host(group, machine="idle")
    await w.rows("UPDATE leases SET state = 'ended', ended_at = now() WHERE epoch = %s", host.epoch)
    await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '1 hour'")
    return host


async def seconds_until_lost(w: World, host: Host, began: float) -> float:
    async def lost() -> bool:
        offline: bool = await w.value(
            "SELECT c.offline FROM manager_live AS c JOIN managers AS m ON m.id = c.manager_id"
            " WHERE m.uuid = %s",
            host.manager_id,
        )
        return offline

    await wait_until_async(lost, timeout=150)
    return time.monotonic() - began


async def is_started(plane: ControlPlane, group: UUID) -> bool:
    answer = await plane.cli("workflow", "describe", "-w", task_group_workflow_id(group))
    return answer.status == 0


@pytest.mark.timeout(300)
async def test_lost_hosts_are_noticed_while_thousands_of_groups_start(
    database: str, temporal_server: str
) -> None:
    async with world(database) as w:
        later = await leased_host(w, "later", LATER_SECONDS)
        silent = await idle_host(w)
        last = await add_groups(w)
        await w.rows(ALIVE, LATER_SECONDS, later.manager_id)
        await w.pokes()  # sent before the loss
        began = time.monotonic()
        async with control_plane(database, temporal_server) as plane:
            await plane.start()
            first = await seconds_until_lost(w, silent, began)
            second = await seconds_until_lost(w, later, began + LATER_SECONDS)
            assert not await is_started(plane, last), "the groups are still being started"
        print(f"noticed after {first:.1f} s and {second:.1f} s")
        assert max(first, second) < WITHIN_SECONDS
