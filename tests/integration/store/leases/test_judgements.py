"""Which groups are judged, with how many statements, and what holds nothing up (C-33)."""

import psycopg
import pytest

from mitosis.contracts.task_cancel import CancelTasks
from mitosis.store.groups.views import read_group
from mitosis.store.leases.doubt import (
    AWAITED,
    ONCE,
    SQL,
    judge_groups,
    with_other_hosts,
)
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager
from mitosis.store.managers.views import get_manager
from mitosis.store.pg import database as pg
from mitosis.store.tasks.cancel import cancel_tasks
from tests.integration.store.leases.test_doubt import fail_all, hosts_on, many
from tests.integration.store.leases.test_look import age, group_of, judged_now, with_failures
from tests.support.campaigns import failed, world


@pytest.mark.parametrize("failures", [2, 6])
async def test_hosts_of_an_ended_group_are_not_judged(database: str, failures: int) -> None:
    async with world(database) as w:
        bad, _ = await with_failures(w, failures)
        group = await group_of(w, bad)
        await w.cancel(group)
        assert [line for line in (await look(w.store)).what if "judgement" in line]
        await w.control.discard(group)
        assert (await assign_round(w.store)).judged_again_in_seconds is None
        await w.pokes()
        await judged_now(w)
        assert not [line for line in (await look(w.store)).what if "judgement" in line]
        assert (await get_manager(w.store, bad.manager_id)).failures == []


async def test_a_look_names_the_judgement_that_each_group_in_doubt_is_due_for(
    database: str,
) -> None:
    async with world(database) as w:
        for number in range(3):
            group = await w.group(f"group-{number}")
            await w.submit(group, 3)
            bad, other = [await w.leased_host(group), await w.leased_host(group)]
            tasks = (await bad.claim()).tasks
            await bad.report(*(failed(task, exit_code=42) for task in tasks[:2]))
            assert other.epoch > bad.epoch
        await judged_now(w)
        assert len([line for line in (await look(w.store)).what if "judgement" in line]) == 3


async def test_a_group_that_is_locked_for_long_holds_up_no_other(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg, "LIMITS", pg.LIMITS.replace("lock_timeout=3s", "lock_timeout=50ms"))
    async with world(database) as w:
        groups = []
        for number in range(2):
            groups.append(await w.group(f"group-{number}"))
            await w.submit(groups[-1], 3)
            bad, _ = [await w.leased_host(groups[-1]), await w.leased_host(groups[-1])]
            tasks = (await bad.claim()).tasks
            await bad.report(*(failed(task, exit_code=42) for task in tasks[:2]))
        await judged_now(w)
        async with w.database.transaction() as holder:
            await holder.execute("SELECT FROM group_live WHERE group_id = 1 FOR UPDATE")
            await judge_groups(w.store)
        ended = [(await read_group(w.store, group)).tasks_failed for group in groups]
        assert ended == [0, 2]
        await judge_groups(w.store)
        assert (await read_group(w.store, groups[0])).tasks_failed == 2


async def test_a_host_that_is_away_does_not_take_its_own_place(database: str) -> None:
    """``max_managers`` leaves it a place although its lease, which is not lost yet, is one of them."""
    async with world(database) as w:
        group = await w.group(max_managers=2)
        await w.submit(group, 9)
        bad, away = await w.host(), await w.host()
        await assign_round(w.store)
        await bad.take(group)
        await away.take(group)
        await age(w, away, "last_contact_at", 100)
        await bad.report(*(failed(task, exit_code=42) for task in (await bad.claim(8)).tasks))
        assert (await read_group(w.store, group)).tasks_failed == 0, "it may come back"


@pytest.mark.parametrize("way", ["drained", "silent", "taken", "trials cancelled"])
async def test_a_suspected_host_is_judged_when_no_report_comes(database: str, way: str) -> None:
    """Its tasks wait for another attempt, so none is doubted: there is nothing that would end or time out."""
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 9, retries=1)
        bad, other = await hosts_on(w, group, 2)
        await fail_all(bad, (await bad.claim(5)).tasks)
        await w.rows("UPDATE open_task SET not_before = now() + interval '1 h' WHERE state = 4")
        assert (await bad.claim(9)).tasks == []
        match way:
            case "drained":
                await drain_manager(w.store, other.manager_id, now=True)
            case "taken":  # for another group, and it runs a long task
                await other.renew(started=(await other.claim(1)).tasks)
                await w.rows(
                    "UPDATE open_task SET started_at = now() - interval '181 s' WHERE state = 1"
                )
                await w.rows("UPDATE leases SET draining = true WHERE epoch = %s", other.epoch)
            case "silent":
                await age(w, other, "last_contact_at", 181)
            case _:
                tried = await w.rows("SELECT id FROM open_task WHERE state = 4")
                asked = CancelTasks(task_ids=tuple(row["id"] for row in tried))
                await cancel_tasks(w.store, group, asked)
        assert [line for line in (await look(w.store)).what if "judgement" in line]
        await assign_round(w.store)
        assert (await bad.claim(9)).tasks != []


async def test_four_suspected_hosts_leave_their_places_to_a_good_one(database: str) -> None:
    """All report before a round ends any of their leases."""
    async with world(database) as w:
        group = await w.group(max_managers=4)
        await many(w, group, 90)
        bad = await hosts_on(w, group, 4)
        await w.host()
        held = [(await host.claim(8)).tasks for host in bad]
        for host, tasks in zip(bad, held, strict=True):
            await fail_all(host, tasks)
        assert (await read_group(w.store, group)).tasks_failed == 0
        await assign_round(w.store)
        leases = await w.rows("SELECT state, end_reason FROM leases")
        assert [tuple(row.values()) for row in leases] == [("ending", "suspected")] * 4


async def test_absent_hosts_are_looked_for_only_where_no_present_one_decides(database: str) -> None:
    """It reads the whole fleet; with many suspects that is a square."""
    costly = SQL["suspects"].replace(
        "$away_seconds$", "(1 / (v.manager_id - v.manager_id))::float8"
    )
    values = {"group_number": 1, "quarantine_after": 5, **AWAITED}
    async with world(database) as w:
        _, other = await with_failures(w, 6)
        async with w.database.connection() as connection:
            rows = await connection.execute(with_other_hosts(costly, ONCE), values)
            assert len(await rows.fetchall()) == 1
        await w.rows("UPDATE managers SET draining = true WHERE uuid = %s", other.manager_id)
        await age(w, other, "last_contact_at", 100)
        async with w.database.connection() as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                await connection.execute(with_other_hosts(costly, ONCE), values)
