"""What is measured about setups, teardowns and tasks, and where it is kept (C-31, C-35, P9)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mitosis.contracts.agent_http import HookReport
from mitosis.store.groups.deletion import delete_group
from mitosis.store.leases.durations import (
    GroupDurations,
    PairDurations,
    group_durations,
    pair_durations,
)
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import record_contact
from mitosis.store.managers.hello import say_goodbye
from tests.support.campaigns import Host, World, failed, succeeded, world

NOON = datetime(2030, 1, 1, tzinfo=UTC)


def hook(seconds: float, state: str = "succeeded") -> HookReport:
    return HookReport.model_validate(
        {"state": state, "started_at": NOON, "finished_at": NOON + timedelta(seconds=seconds)}
    )


async def served(w: World, group: UUID, *, setup: float, teardown: float) -> Host:
    """A host that has prepared itself for the group and cleaned up, in so many seconds."""
    await w.rows("UPDATE managers SET draining = true")
    host = await w.host()
    await w.submit(group)
    await assign_round(w.store)
    await host.take(group, prepare=False)
    await prepared_and_cleaned(host, group, setup, teardown)
    return host


async def prepared_and_cleaned(host: Host, group: UUID, setup: float, teardown: float) -> None:
    await host.environment(group, "preparing", epoch=host.epoch, fingerprint="f")
    for _ in range(2):  # a repeated report counts once
        await host.environment(group, "prepared", epoch=host.epoch, hook=hook(setup))
    await host.finish((await host.claim()).tasks)
    await host.world.rows(
        "UPDATE leases SET state = 'ended', ended_at = now() WHERE state <> 'ended'"
    )
    await host.environment(group, "tear_down")
    for _ in range(2):
        await host.environment(group, "cleaned", hook=hook(teardown))


async def number(w: World, group: UUID) -> int:
    return int(await w.value("SELECT id FROM task_groups WHERE uuid = %s", group))


async def of_group(w: World, group: UUID) -> GroupDurations:
    async with w.database.connection() as connection:
        (found,) = (await group_durations(connection, [await number(w, group)])).values()
    return found


async def of_pair(w: World, group: UUID, host: Host) -> PairDurations:
    manager = int(await w.value("SELECT id FROM managers WHERE uuid = %s", host.manager_id))
    async with w.database.connection() as connection:
        pairs = [(await number(w, group), manager)]
        (found,) = (await pair_durations(connection, pairs)).values()
    return found


async def test_setups_and_teardowns_are_measured_for_group_host_and_pair(database: str) -> None:
    async with world(database) as w:
        first, second = await w.group("first"), await w.group("second")
        slow = await served(w, first, setup=100, teardown=20)
        fast = await served(w, first, setup=40, teardown=10)
        new = await w.host()
        found = await of_group(w, first)
        assert (found.setup_seconds, found.teardown_seconds) == (70, 15)
        for group, host, expected in (
            (first, slow, (100, 20)),
            (first, fast, (40, 10)),
            (first, new, (70, 15)),  # the mean of the group
            (second, slow, (100, 20)),  # the mean of the host
            (second, new, (0, 0)),
        ):
            pair = await of_pair(w, group, host)
            assert (pair.setup_seconds, pair.teardown_seconds) == expected


async def test_a_mean_follows_a_change_and_a_failed_setup_is_not_measured(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        host = await served(w, group, setup=100, teardown=20)
        for _ in range(25):
            await w.rows("UPDATE host_failures SET next_at = now()")
            await record_contact(w.store, host.manager_id)
            await w.submit(group)
            await assign_round(w.store)
            await host.take(group, prepare=False)
            await prepared_and_cleaned(host, group, 10, 20)
        assert 10 < (await of_group(w, group)).setup_seconds < 20
        before = await of_group(w, group)
        await w.submit(group)
        await assign_round(w.store)
        await host.take(group, prepare=False)
        await host.environment(group, "preparing", epoch=host.epoch, fingerprint="f")
        await host.environment(
            group, "setup_failed", epoch=host.epoch, hook=hook(1000, state="failed")
        )
        assert (await of_group(w, group)).setup_seconds == before.setup_seconds


async def test_without_a_hook_the_step_is_measured(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group, prepare=False)
        await host.environment(group, "preparing", epoch=host.epoch, fingerprint="f")
        await w.rows("UPDATE environments SET changed_at = now() - interval '30 seconds'")
        await host.environment(group, "prepared", epoch=host.epoch)
        assert 30 <= (await of_group(w, group)).setup_seconds < 40


async def test_the_mean_duration_of_tasks(database: str) -> None:
    """Of those that ended by themselves. A wrong clock, or a start that is not named, adds nothing."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 6)
        host = await w.leased_host(group)
        assert (await of_group(w, group)).tasks_measured == 0
        done, bad, over, backwards, unknown, infinite = (await host.claim()).tasks
        await host.report(
            succeeded(done, started_at=100.0, finished_at=104.0),
            failed(bad, exit_code=1, started_at=100.0, finished_at=102.0),
            succeeded(backwards, started_at=100.0, finished_at=90.0),
            succeeded(unknown),
            succeeded(infinite, started_at=0.0, finished_at=1e10),
        )
        found = await of_group(w, group)
        assert (found.tasks_measured, found.task_seconds) == (2, 3)
        await host.report(succeeded(over, started_at=100.0, finished_at=106.0))
        await host.report(succeeded(over, started_at=100.0, finished_at=106.0))
        found = await of_group(w, group)
        assert (found.tasks_measured, found.task_seconds) == (3, 4)


async def test_a_deleted_group_leaves_the_mean_of_the_host(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        host = await served(w, group, setup=100, teardown=20)
        await w.complete(group, force=True)
        await w.control.finalize(group)
        await w.control.settle(group)
        await delete_group(w.store, group)
        rows = await w.rows(
            "SELECT group_id, kind, mean_seconds FROM environment_durations ORDER BY 2"
        )
        assert [tuple(row.values()) for row in rows] == [
            (None, "setup", 100),
            (None, "teardown", 20),
        ]
        pair = await of_pair(w, await w.group("next"), host)
        assert pair.setup_seconds == 100


@pytest.mark.parametrize("deleted", [True, False])
async def test_an_owed_teardown_is_measured(database: str, deleted: bool) -> None:
    async with world(database) as w:
        group = await w.group()
        host = await w.host()
        await w.submit(group)
        await assign_round(w.store)
        await host.take(group)
        await host.finish((await host.claim()).tasks)
        await w.rows("UPDATE leases SET state = 'ended', ended_at = now()")
        await w.rows("UPDATE environments SET state = 'owed'")
        await w.complete(group, force=True)
        await w.control.finalize(group)
        if deleted:
            await say_goodbye(
                w.store, host.manager_id, None
            )  # a settlement waits for the teardowns of hosts in contact
            await w.control.settle(group)
            await delete_group(w.store, group)
            await host.hello()
        await host.environment(group, "tear_down")
        await host.environment(group, "cleaned", hook=hook(7))
        of_host = (
            "SELECT mean_seconds FROM environment_durations"
            " WHERE group_id IS NULL AND kind = 'teardown'"
        )
        assert await w.value(of_host) == 7
