"""Failures of hosts for task groups: what is recorded, how the pauses grow, when a failure counts no more."""

import pytest

from mitosis.contracts.host_failures import PAUSES, HostFailureKind
from mitosis.store.leases.failures import forget_failures, record_failure
from tests.support.campaigns import World, world

ROWS = """
SELECT kind, failures, reason, extract(epoch FROM next_at - failed_at)::float8 AS pause
  FROM host_failures ORDER BY kind"""


async def fail(w: World, kind: HostFailureKind, reason: str = "it broke") -> None:
    async with w.store.database.transaction() as connection:
        numbers = (
            await w.value("SELECT id FROM managers"),
            await w.value("SELECT id FROM task_groups"),
        )
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
            assert row["pause"] == pytest.approx(pause.after(failures))
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
