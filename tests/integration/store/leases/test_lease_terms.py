"""How long a host stays with a task group follows from measured costs and from settings (C-31, C-35)."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskGroupUpdate
from mitosis.contracts.lease_settings import LeaseSettings, LeaseTerms
from mitosis.store.groups.definition import update_group
from mitosis.store.groups.views import read_group
from mitosis.store.leases.lease_terms import policy_of
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.leases.waiting import read_waiting
from mitosis.store.managers.views import observe_manager
from tests.support.campaigns import Host, World, world
from tests.support.scheduling import HOUR, NOW, Fleet

AFFINITY = (
    "SELECT extract(epoch FROM affinity_until - taken_at)::float8 FROM leases ORDER BY epoch DESC"
)


async def measured(w: World, group: UUID, kind: str, seconds: float) -> None:
    await w.rows(
        "INSERT INTO environment_durations (group_id, kind, mean_seconds, runs, all_runs, all_seconds)"
        " SELECT id, %s, %s, 1, 1, 0 FROM task_groups WHERE uuid = %s",
        *(kind, seconds, group),
    )


async def configured(w: World, group: UUID, **own: Any) -> None:
    await update_group(w.store, group, TaskGroupUpdate(lease_settings=LeaseSettings(**own)))


async def taken_again(w: World, group: UUID, host: Host) -> float:
    """The affinity of a new lease, in seconds."""
    await w.rows("UPDATE leases SET state = 'ended', ended_at = now() WHERE state <> 'ended'")
    await w.submit(group)
    await assign_round(w.store)
    await host.take(group, prepare=not await w.rows("SELECT state FROM environments"))
    return round(float(await w.value(AFFINITY)), 3)


async def test_the_affinity_of_a_lease_is_written_from_costs_and_settings(database: str) -> None:
    async with world(database) as w:
        group = await w.group(worker_allocation_plan={"worker_count": 4})
        host = await w.host()
        assert await taken_again(w, group, host) == 3600, "nothing is known to cost much"
        await w.rows("DELETE FROM environment_durations")
        await measured(w, group, "setup", 200)
        await measured(w, group, "teardown", 40)
        assert await taken_again(w, group, host) == 20 * 240
        await w.rows("DELETE FROM environment_durations WHERE manager_id IS NOT NULL")
        await w.rows("UPDATE environment_durations SET mean_seconds = 60")
        await w.rows("UPDATE group_live SET runs = 10, run_seconds = 1000")
        assert await taken_again(w, group, host) == round(20 * (120 + 100 * math.log(4)), 3)
        await w.rows("UPDATE group_live SET run_seconds = 1e6")
        assert await taken_again(w, group, host) == 4 * 3600
        await configured(w, group, lease_duration="5m", longest_lease="10m")
        assert await taken_again(w, group, host) == 600
        await configured(w, group, longest_lease=None)
        assert await taken_again(w, group, host) == 4 * 3600
        await host.hello()
        assert round(float(await w.value(AFFINITY))) == 4 * 3600, "also of a new epoch"
        w.store = replace(w.store, lease_terms=LeaseTerms(longest_lease=7200))
        assert await taken_again(w, group, host) == 7200


@pytest.mark.spec("C-27", "C-31", "S002-158", "S002-179", "S002-284")
@pytest.mark.parametrize(
    ("setup", "settings", "seconds"),
    [
        (0.0, {}, 3600.0),
        (240.0, {}, 20 * 240.0),
        (1e4, {}, 4 * 3600.0),
        (0.0, {"lease_duration": "10m", "longest_lease": "30m"}, 600.0),
        (1e4, {"lease_duration": "10m", "longest_lease": "30m"}, 1800.0),
    ],
)
async def test_work_keeps_a_host_for_as_long_as_its_affinity_and_no_longer(
    database: str, setup: float, settings: dict[str, str], seconds: float
) -> None:
    async with world(database) as w:
        group = await w.group()
        await configured(w, group, **settings)
        await w.submit(group, 9)
        host = await w.leased_host(group)
        await w.rows("DELETE FROM environment_durations")
        await measured(w, group, "setup", setup)
        await taken_again(w, group, host)
        await host.renew(started=(await host.claim(1)).tasks)
        await w.submit(await w.group("high", priority=100))
        earlier = "UPDATE leases SET affinity_until = affinity_until - make_interval(secs => %s)"
        await w.rows(earlier, seconds - 5)
        answer = await assign_round(w.store)
        assert 0 < (answer.next_round_in_seconds or 0) <= 5
        assert (await host.claim(1)).tasks, "it is safe"
        await w.rows(earlier, 5)
        await assign_round(w.store)
        assert not (await host.claim(1)).tasks, "it goes to the other group between tasks"


@pytest.mark.spec("S000-52")
async def test_another_lease_duration_holds_from_the_next_renewal_of_a_lease_that_works(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 9)
        host = await w.leased_host(group)
        await host.renew(started=(await host.claim(1)).tasks)
        await configured(w, group, lease_duration="10m")
        await w.rows("UPDATE leases SET affinity_until = now()")
        await assign_round(w.store)
        lease = (await observe_manager(w.store, host.manager_id)).lease
        assert lease is not None
        assert lease.turn is not None
        assert (lease.turn.what, lease.epoch) == ("affinity", host.epoch)
        assert lease.turn.in_seconds == pytest.approx(600, abs=5), "the timer of its workflow"
        assert (await host.claim(1)).tasks


@pytest.mark.spec("S002-171")
async def test_a_row_of_the_table_of_settings_has_an_effect(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.rows("INSERT INTO manager_config (task_group_id) SELECT id FROM task_groups")
        (row,) = await w.rows("SELECT * FROM manager_config")
        assert (row["lease_duration_seconds"], row["idle_threshold_seconds"]) == (3600, 300)
        assert {"id", "updated_at"} <= row.keys()
        w.store = replace(w.store, lease_terms=LeaseTerms(lease_duration=60, idle_threshold=5))
        assert await taken_again(w, group, await w.host()) == 3600
        await _only_wants(w, group, 300)


async def _only_wants(w: World, holder: UUID, seconds: float) -> None:
    """Assert that another group gets the only host when its lease has been idle for so long."""
    await w.rows("DELETE FROM open_task")
    await w.rows("UPDATE group_live SET unfinished = 0, total = 0")
    await w.rows("UPDATE manager_live SET last_contact_at = now()")  # however long the test takes
    if not await w.rows("SELECT id FROM task_groups WHERE name = 'other'"):
        await w.group("other")
    other = await w.value("SELECT uuid FROM task_groups WHERE name = 'other'")
    await w.submit(other)
    await w.rows(
        "UPDATE leases SET busy_at = NULL, taken_at = now() - make_interval(secs => %s)",
        seconds - 5,
    )
    left = (await assign_round(w.store)).next_round_in_seconds
    assert left is not None
    assert 0 < left <= 5, f"{left} s are left"
    assert not (await look(w.store)).what
    await w.rows("UPDATE leases SET taken_at = taken_at - interval '5 seconds'")
    assert await w.value("SELECT state FROM leases WHERE state <> 'ended'") == "active"
    assert (await look(w.store)).what
    await assign_round(w.store)
    assert await w.value("SELECT state FROM leases WHERE state <> 'ended'") == "ending"
    await w.rows("UPDATE leases SET state = 'active', freed_for = NULL WHERE state = 'ending'")


@pytest.mark.spec("C-35", "S002-160", "S002-161", "S002-179")
async def test_an_idle_host_goes_when_it_has_been_idle_for_what_the_move_costs(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        other = await w.group("other")
        await taken_again(w, group, await w.host())
        await w.rows("DELETE FROM environment_durations")
        await _only_wants(w, group, 180)
        await measured(w, group, "teardown", 150)
        await measured(
            w, group, "setup", 9999
        )  # of the group that has the host: no cost of this move
        await measured(w, other, "setup", 100)
        await _only_wants(w, group, 250)
        await w.rows("UPDATE environment_durations SET mean_seconds = 1e4")
        await _only_wants(w, group, 600)
        await configured(w, group, longest_idle="20m", idle_threshold="15m")
        await _only_wants(w, group, 1200)
        await w.rows("UPDATE environment_durations SET mean_seconds = 0")
        await _only_wants(w, group, 900)
        await configured(w, group, idle_threshold="1m")
        await _only_wants(w, group, 60)
        await configured(w, group, idle_threshold=None, longest_idle=None)
        await _only_wants(w, group, 180)


@pytest.mark.spec("S002-179")
async def test_settings_are_checked_together_and_shown(database: str) -> None:
    async with world(database) as w:
        group = await w.group(lease_settings={"lease_duration": "2h"})
        with pytest.raises(InvalidRequest, match="at least lease_duration, 7200 s") as refused:
            await configured(w, group, longest_lease="1h")
        assert refused.value.facts["field"] == "lease_settings.longest_lease"
        with pytest.raises(InvalidRequest, match="of the deployment, 600 s"):
            await w.group("bad", lease_settings={"idle_threshold": "11m"})
        assert await w.value("SELECT count(*) FROM task_groups WHERE name = 'bad'") == 0
        await configured(w, group, idle_threshold="4m")
        shown = await read_group(w.store, group)
        assert shown.lease_settings == LeaseSettings(
            lease_duration=timedelta(hours=2), idle_threshold=timedelta(minutes=4)
        )
        assert shown.lease_terms is not None
        assert list(shown.lease_terms.values().values()) == [7200, 14_400, 240, 600, 300]


async def _decided(w: World, group: UUID) -> Fleet:
    """A fleet under the rules of the store: group 2 goes before group 1, which has this one's settings."""
    number = await w.value("SELECT id FROM task_groups WHERE uuid = %s", group)
    async with w.store.database.connection() as connection:
        found = await read_waiting(connection, w.store, number)
    assert found is not None
    own = found.group_state.fact.leases
    fleet = Fleet(1, policy_of(w.store))
    fleet.group(1, ready=9, leases=own)
    fleet.group(2, priority=1)
    fleet.lease(1, 1, affinity_until=NOW)
    return fleet


@pytest.mark.spec("C-36", "S000-155")
async def test_grace_moves_and_starvation_of_a_decision_are_those_of_the_settings(
    database: str,
) -> None:
    async with world(database) as w:
        w.store = replace(
            w.store,
            lease_terms=LeaseTerms(preemption_grace=30),
            moves_per_hour=2,
            starve_after=timedelta(hours=2),
        )
        group = await w.group()
        (end,) = (await _decided(w, group)).ends()
        assert end.ask_back_at == NOW + 30
        await configured(w, group, preemption_grace="1m")
        (end,) = (await _decided(w, group)).ends()
        assert end.ask_back_at == NOW + 60

        fleet = await _decided(w, group)
        fleet.host(1, moved_at=(NOW - 20, NOW - 10))
        assert fleet.ends() == [], "it was taken from task groups twice in this hour"
        fleet.host(1, moved_at=(NOW - 10,))
        assert len(fleet.ends()) == 1

        fleet = await _decided(w, group)
        fleet.change_group(2, priority=-1)
        fleet.work(2, hostless_since=NOW - 2 * HOUR + 1)
        assert fleet.ends() == []
        fleet.work(2, hostless_since=NOW - 2 * HOUR)
        assert len(fleet.ends()) == 1, "it has starved"
        w.store = replace(w.store, starve_after=timedelta(0))
        fleet.snapshot.policy = policy_of(w.store)
        assert fleet.ends() == [], "no time makes it go first"
