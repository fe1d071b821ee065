"""Failures of hosts for task groups: what is recorded, how the pauses grow, when a failure counts no more."""

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.host_failures import PAUSES, HostFailureKind
from mitosis.store.leases.failures import forget_failures, lift_failures, record_failure
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager
from tests.support.campaigns import Host, World, world
from tests.support.failed_setups import fail_setup

ROWS = """
SELECT kind, failures, reason, extract(epoch FROM next_at - failed_at)::float8 AS pause
  FROM host_failures ORDER BY kind"""


async def fail(
    w: World, kind: HostFailureKind, reason: str = "it broke", host: Host | None = None
) -> None:
    manager = "SELECT id FROM managers WHERE coalesce(uuid = %s, true)"
    number = await w.value(manager, host and host.manager_id)
    async with w.store.database.transaction() as connection:
        numbers = number, await w.value("SELECT id FROM task_groups")
        await record_failure(connection, *numbers, kind, reason)


async def test_the_pause_doubles_up_to_its_longest_and_begins_again_with_a_new_process(
    database: str,
) -> None:
    async with world(database) as w:
        await w.group()
        host = await w.host()
        pause = PAUSES[HostFailureKind.UNREACHABLE]
        assert pause is not None
        for failures in range(1, 8):
            await fail(w, HostFailureKind.UNREACHABLE)
            (row,) = await w.rows(ROWS)
            assert row["failures"] == failures
            doubled = pause.first_seconds * 2 ** (failures - 1)
            assert row["pause"] == pytest.approx(min(doubled, pause.longest_seconds))
        (row,) = await w.rows(ROWS)
        assert row["pause"] == pause.longest_seconds
        await host.hello()
        await fail(w, HostFailureKind.UNREACHABLE, "again")
        (row,) = await w.rows(ROWS)
        assert (row["failures"], row["reason"]) == (1, "again")
        assert row["pause"] == pause.first_seconds


async def test_each_kind_is_counted_apart_and_forgotten_by_name(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.host()
        await fail(w, HostFailureKind.SETUP_FAILED)
        await fail(w, HostFailureKind.NO_PROGRESS)
        (stuck, setup) = await w.rows(ROWS)
        assert (stuck["kind"], setup["kind"], setup["pause"]) == (
            "no_progress",
            "setup_failed",
            None,
        )
        manager = await w.value("SELECT id FROM managers")
        async with w.store.database.transaction() as connection:
            number = await w.value("SELECT id FROM task_groups WHERE uuid = %s", group)
            kinds = (HostFailureKind.NO_PROGRESS,)
            assert await forget_failures(connection, manager, number, kinds) == 1
            assert await forget_failures(connection, manager, None) == 1
        assert await w.rows(ROWS) == []


async def released(host: Host, reason: ReleaseReason) -> None:
    request = ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=reason)
    await release_lease(host.world.store, request)


@pytest.mark.spec("C-30")
@pytest.mark.parametrize("way", ["new incarnation", "changed hook", "verb", "time"])
async def test_a_failed_setup_is_repeated_there_only_after_a_change(
    database: str, way: str
) -> None:
    async with world(database) as w:
        group = await w.group(environment_setup_hook={"command": ["false"]})
        await w.submit(group)
        host = await w.host()
        assert (await assign_round(w.store)).offered == 1
        await fail_setup(group, host, exit_code=3)
        await host.hello(incarnation=host.incarnation)
        assert (await assign_round(w.store)).offered == 0
        (shown,) = (await get_manager(w.store, host.manager_id)).failures
        assert "exit code 3" in shown.line
        assert (
            f"mitosis manager retry-setup host --task-group {shown.task_group_name}" in shown.line
        )
        match way:
            case "new incarnation":
                await host.hello()
            case "changed hook":
                await w.rows(
                    'UPDATE task_groups SET environment_setup_hook = \'{"command": ["true"]}\''
                )
            case "verb":
                await w.pokes()
                kinds = (HostFailureKind.SETUP_FAILED,)
                assert await lift_failures(w.store, host.manager_id, group, kinds) == ["campaign"]
                assert ("scheduler", None) in await w.pokes()
            case "time":
                await w.rows("UPDATE host_failures SET failed_at = now() - interval '1 year'")
        again = way != "time"
        assert (await assign_round(w.store)).offered == again
        assert bool((await get_manager(w.store, host.manager_id)).failures) == (not again)
        if again:
            await fail_setup(group, host, exit_code=3)
            assert (await assign_round(w.store)).offered == 0, "it failed again"


async def test_an_offer_that_a_host_does_not_take_goes_to_another_host_in_the_next_round(
    database: str,
) -> None:
    """The first one calls the API and cannot reach Temporal."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        deaf, healthy = await w.host(), await w.host()
        await assign_round(w.store)
        deaf.epoch = await deaf.offered_epoch()
        await released(deaf, ReleaseReason.UNREACHABLE)
        answer = await assign_round(w.store)
        assert answer.offered == 1
        assert answer.next_round_in_seconds == pytest.approx(10, abs=2)
        assert await healthy.offered_epoch() > deaf.epoch
        (shown,) = (await get_manager(w.store, deaf.manager_id)).failures
        assert shown.kind == "unreachable"
        assert shown.line.startswith("is unreachable: it did not take the last offer within 10 s")
        other = await w.group("other", priority=9)
        await w.submit(other)
        assert (await assign_round(w.store)).offered == 0, "no group waits for it in its pause"
        await w.rows("UPDATE host_failures SET next_at = now()")
        assert (await assign_round(w.store)).offered == 1
        await deaf.take(other)
        assert (await get_manager(w.store, deaf.manager_id)).failures == []


async def test_hosts_that_failed_come_after_those_that_did_not(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        first, second = await w.host(), await w.host()
        await fail(w, HostFailureKind.NO_PROGRESS, host=first)
        await w.rows("UPDATE host_failures SET next_at = now()")
        await assign_round(w.store)
        assert await second.offered_epoch() > 0
        await w.submit(group, 10)
        await assign_round(w.store)
        assert await first.offered_epoch() > 0, "it is still used"
