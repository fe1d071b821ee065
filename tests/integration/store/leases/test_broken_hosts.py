"""Sequences in which a broken host was believed although a good one was there, and similar ones (C-33)."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from mitosis.contracts.wire import ClaimedTask
from mitosis.store.groups.views import read_group
from mitosis.store.leases.doubt import judge_groups
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.workers import record_workers
from mitosis.store.tasks import report
from tests.integration.store.leases.test_doubt import (
    PHASES,
    fail_all,
    hosts_on,
    many,
    phase,
    quarantined,
)
from tests.integration.store.leases.test_look import age
from tests.support.campaigns import Host, World, world

TIME_IS_OVER = "UPDATE host_failures SET next_at = now() - interval '1 s'"


async def failures(w: World, group: UUID) -> int:
    return (await read_group(w.store, group)).tasks_failed


async def phase_of(w: World, host: Host) -> str | None:
    found = await w.rows(
        "SELECT f.phase FROM host_failures AS f JOIN managers AS m ON m.id = f.manager_id"
        " WHERE f.kind = 'tasks_failed' AND m.uuid = %s",
        host.manager_id,
    )
    return str(found[0]["phase"]) if found else None


@pytest.mark.spec("C-33")
@pytest.mark.parametrize("doing", ["runs the trials", "runs other tasks", "sets up", "leaves soon"])
async def test_a_suspicion_lasts_while_a_good_host_has_not_decided_it(
    database: str, doing: str
) -> None:
    """Tasks and setups may take longer than the 600 s of a suspicion."""
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 60)
        bad, good = [await w.host(), await w.host()]
        await assign_round(w.store)
        await bad.take(group)
        await good.take(group, prepare=doing != "sets up")
        tasks: Sequence[ClaimedTask] = ()
        if doing == "runs other tasks":
            tasks = (await good.claim(8)).tasks
        await fail_all(bad, (await bad.claim(20)).tasks)
        if doing in ("runs the trials", "leaves soon"):
            tasks = (await good.claim(3)).tasks
        await good.renew(started=tasks)
        await w.rows("UPDATE open_task SET started_at = now() - interval '700 s' WHERE state = 1")
        await w.rows("UPDATE environments SET changed_at = now() - interval '700 s'")
        if doing == "leaves soon":
            await w.rows("UPDATE leases SET draining = true WHERE epoch = %s", good.epoch)
        await w.rows(TIME_IS_OVER)
        await judge_groups(w.store)
        assert await failures(w, group) == 0
        assert (await bad.claim(20)).tasks == []
        await assign_round(w.store)
        ended = "SELECT end_reason FROM leases WHERE epoch = %s"
        assert await w.value(ended, bad.epoch) == "suspected"


@pytest.mark.spec("C-33")
async def test_a_suspicion_ends_when_a_host_that_could_try_the_tasks_gets_none(
    database: str,
) -> None:
    """It is free and is not offered, for whatever reason; or it would last for ever."""
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 60)
        (bad,) = await hosts_on(w, group, 1)
        await w.host()
        await fail_all(bad, (await bad.claim(20)).tasks)
        assert await phase(w) == "suspected"
        await w.rows(TIME_IS_OVER)
        await judge_groups(w.store)
        assert await phase(w) == "excused"


@pytest.mark.spec("C-33")
@pytest.mark.parametrize("known", ["suspected", "quarantined"])
async def test_a_good_host_that_cannot_start_workers_for_a_moment_is_awaited(
    database: str, known: str
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 30)
        bad, good = await hosts_on(w, group, 2)
        if known == "quarantined":
            await quarantined(w, group, bad, good)
        else:
            await fail_all(bad, (await bad.claim(8)).tasks)
        await record_workers(w.store, good.manager_id, good.epoch, "no memory")
        await judge_groups(w.store)
        assert await failures(w, group) == 0
        assert await phase(w) == known


@pytest.mark.spec("C-33")
async def test_a_host_is_excused_no_longer_when_a_good_one_has_come(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 30)
        (bad,) = await hosts_on(w, group, 1)
        good = await w.host()
        await fail_all(bad, (await bad.claim(8)).tasks)
        await age(w, good, "last_contact_at", 181)
        await judge_groups(w.store)
        assert (await phase(w), await failures(w, group)) == ("excused", 5)
        await good.hello()
        await assign_round(w.store)
        await good.take(group, prepare=False)
        assert [line for line in (await look(w.store)).what if "judgement" in line]
        await judge_groups(w.store)
        assert not [line for line in (await look(w.store)).what if "judgement" in line]
        await fail_all(bad, (await bad.claim(8)).tasks)
        assert (await phase(w), await failures(w, group)) == ("suspected", 5)


async def test_a_look_finds_failures_that_nobody_has_judged(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API died between a report and its judgement."""

    async def die(*_: object) -> None: ...

    async with world(database) as w:
        group = await w.group()
        await many(w, group, 8)
        bad, _ = await hosts_on(w, group, 2)
        monkeypatch.setattr(report, "judge_report", die)
        await fail_all(bad, (await bad.claim(8)).tasks[:2])
        assert await w.rows(PHASES) == []
        assert [line for line in (await look(w.store)).what if "judgement" in line]
