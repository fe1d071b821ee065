"""The host time that switches cost and that kept environments save, against figures computed by hand."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mitosis.contracts.agent_http import HookReport
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.switching import SwitchingCosts
from mitosis.store.groups.views import read_group
from mitosis.store.leases.durations import RUNS_REMEMBERED, record_duration
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager, observe_manager
from tests.support.campaigns import Host, World, world

NOON = datetime(2030, 1, 1, tzinfo=UTC)


def hook(seconds: float) -> HookReport:
    return HookReport.model_validate(
        {"state": "succeeded", "started_at": NOON, "finished_at": NOON + timedelta(seconds=seconds)}
    )


async def of_group(w: World, group: UUID) -> SwitchingCosts:
    found = (await read_group(w.store, group)).switching
    assert found is not None
    return found


async def of_host(w: World, host: Host) -> SwitchingCosts:
    found = (await get_manager(w.store, host.manager_id)).switching
    assert found is not None
    return found


async def begin(w: World, host: Host, group: UUID, setup: float | None) -> None:
    """Have the host take a lease of the group. ``setup``: None, its environment is kept."""
    await w.submit(group)
    await assign_round(w.store)
    await host.take(group, prepare=False)
    if setup is not None:
        await host.environment(group, "preparing", epoch=host.epoch, fingerprint="f")
        await host.environment(group, "prepared", epoch=host.epoch, hook=hook(setup))
    await host.finish((await host.claim()).tasks)


async def end(host: Host) -> None:
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
    )
    for _ in range(2):  # an ended lease counts once
        await release_lease(host.world.store, request)
    assert (await observe_manager(host.world.store, host.manager_id)).lease is None


async def clean(host: Host, group: UUID, teardown: float) -> None:
    await host.environment(group, "tear_down")
    await host.environment(group, "cleaned", hook=hook(teardown))


async def test_setups_and_teardowns_are_lost_to_the_group_and_to_each_host(database: str) -> None:
    async with world(database) as w:
        group, other = await w.group("group"), await w.group("other")
        hosts = []
        for setup, teardown in ((1800.0, 600.0), (360.0, 90.0)):
            await w.rows("UPDATE managers SET draining = true")
            hosts.append(host := await w.host())
            await begin(w, host, group, setup)
            await end(host)
            await clean(host, group, teardown)
        await begin(w, hosts[1], other, 7.0)
        found = await of_group(w, group)
        assert (found.setups, found.setup_seconds) == (2, 2160.0)
        assert (found.teardowns, found.teardown_seconds) == (2, 690.0)
        assert (found.drains, found.returns, found.saved_seconds) == (0, 0, 0.0)
        assert found.lost_seconds == 2850.0
        assert (await of_host(w, hosts[0])).lost_seconds == 2400.0
        assert (await of_host(w, hosts[1])).lost_seconds == 457.0
        assert (await of_group(w, other)).lost_seconds == 7.0


async def test_more_runs_than_a_mean_remembers_are_all_summed_up(database: str) -> None:
    async with world(database) as w:
        group, host = await w.group(), await w.host()
        of_group_id = await w.value("SELECT id FROM task_groups WHERE uuid = %s", group)
        of_host_id = await w.value("SELECT id FROM managers WHERE uuid = %s", host.manager_id)
        async with w.database.transaction() as connection:
            for _ in range(RUNS_REMEMBERED + 2):
                await record_duration(connection, of_group_id, of_host_id, "setup", 100.0)
        for found in (await of_group(w, group), await of_host(w, host)):
            assert (found.setups, found.setup_seconds) == (22, 2200.0)


async def test_a_return_to_a_kept_environment_saves_its_measured_setup(database: str) -> None:
    async with world(database) as w:
        group, host = await w.group(), await w.host()
        await begin(w, host, group, 120.0)
        await end(host)
        assert (await of_group(w, group)).returns == 0
        for _ in range(3):
            await begin(w, host, group, None)
            await end(host)
        for found in (await of_group(w, group), await of_host(w, host)):
            assert (found.returns, found.saved_seconds) == (3, 360.0)
            assert (found.setups, found.lost_seconds) == (1, 120.0)


@pytest.mark.parametrize(("workers", "lost"), [(1, 0.0), (2, 200.0), (3, 600 * 5 / 11)])
async def test_a_contested_end_costs_the_part_of_the_drain_without_work(
    database: str, workers: int, lost: float
) -> None:
    """Ten minutes: of two workers 1 - 1/(3/2) have nothing to do on average, of three 1 - 1/(11/6)."""
    async with world(database) as w:
        group = await w.group(worker_allocation_plan={"worker_count": workers})
        host = await w.host()
        await begin(w, host, group, 0.0)
        await w.rows("UPDATE leases SET contested_at = now() - interval '10 min'")
        await end(host)
        found = await of_group(w, group)
        assert found.drains == 1
        assert found.drain_seconds == pytest.approx(lost, abs=5.0)
        assert (found.lost_seconds, found.returns) == (found.drain_seconds, 0)


async def test_an_offer_that_was_not_taken_costs_nothing(database: str) -> None:
    async with world(database) as w:
        group, host = await w.group(), await w.host()
        await w.submit(group)
        await assign_round(w.store)
        host.epoch = await host.offered_epoch()
        await w.rows("UPDATE leases SET contested_at = now() - interval '10 min'")
        await end(host)
        assert await of_group(w, group) == SwitchingCosts()
