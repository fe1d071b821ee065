"""Sequences in which a broken host was believed although a good one was there, and similar ones (C-33)."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.groups.views import read_group
from mitosis.store.leases.doubt import judge_groups
from mitosis.store.leases.failures import lift_failures
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
from tests.integration.store.leases.test_other_hosts import TWO_CORES, beside
from tests.support.campaigns import Host, World, failed, succeeded, world

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
async def test_a_good_host_with_one_wrong_task_does_not_make_a_broken_one_believed(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=TWO_CORES)
        await many(w, group, 12)
        bad, good = await hosts_on(w, group, 2)
        await beside(w, "working elsewhere", group)
        await fail_all(bad, (await bad.claim(8)).tasks)
        (wrong,) = (await good.claim(1)).tasks
        await fail_all(good, [wrong])
        assert await phase_of(w, good) == "suspected", "it failed a trial"
        await w.rows("UPDATE host_failures SET failed_at = now() - interval '181 s'")
        await judge_groups(w.store)
        while tasks := (await good.claim(1)).tasks:
            ends = fail_all if tasks[0].task_id == wrong.task_id else Host.finish
            await ends(good, tasks)
        assert await failures(w, group) == 1
        assert await phase_of(w, bad) == "quarantined"


@pytest.mark.spec("C-33")
async def test_what_began_before_a_host_broke_does_not_speak_for_it(database: str) -> None:
    """A disk that is full: what runs goes on, and what begins fails at once."""
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 40)
        bad, _ = await hosts_on(w, group, 2)
        first, *others = (await bad.claim(10)).tasks
        for i, task in enumerate(others):
            at = 100.0 + i
            await bad.report(failed(task, exit_code=42, started_at=at, finished_at=at + 1))
        await bad.report(succeeded(first, started_at=1.0, finished_at=200.0))
        assert await failures(w, group) == 0
        assert await phase(w) == "suspected"


async def test_in_a_batch_what_began_before_a_host_broke_does_not_speak_for_it(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 40)
        bad, _ = await hosts_on(w, group, 2)
        first, *others = (await bad.claim(10)).tasks
        await bad.report(
            succeeded(first, started_at=1.0, finished_at=200.0),
            *(failed(one, exit_code=42, started_at=99.0, finished_at=100.0) for one in others),
        )
        assert await failures(w, group) == 0
        assert await phase(w) == "suspected"


@pytest.mark.spec("C-33")
async def test_only_the_success_of_a_probe_ends_a_quarantine(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 30)
        bad, good = await hosts_on(w, group, 2)
        old = (await bad.claim(6)).tasks[5:]
        await fail_all(bad, list(bad.held.values())[:5])
        await good.finish((await good.claim(2)).tasks)
        assert await phase(w) == "quarantined"
        await bad.finish(old)
        assert await phase(w) == "quarantined"


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


async def test_a_host_that_is_released_is_not_suspected_for_the_same_failures(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 30)
        bad, _ = await hosts_on(w, group, 2)
        await fail_all(bad, (await bad.claim(8)).tasks)
        kinds = (HostFailureKind.QUARANTINED,)
        assert await lift_failures(w.store, bad.manager_id, group, kinds) == ["campaign"]
        await judge_groups(w.store)
        assert await phase(w) is None
        assert await failures(w, group) == 0
        assert len((await bad.claim(30)).tasks) == 30, "also the failures that were doubted"


async def test_a_quarantine_gives_back_no_attempt_that_was_not_charged(database: str) -> None:
    """A death by SIGTERM counts apart, and was never charged."""
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 20, retries=2)
        bad, good = await hosts_on(w, group, 2)
        task = (await good.claim(1)).tasks[0]
        await fail_all(good, [task])
        ready = "UPDATE open_task SET not_before = now() - interval '10 s' WHERE state = 4"
        await w.rows(ready)
        held = (await bad.claim(1)).tasks
        assert held[0].task_id == task.task_id
        await bad.report(failed(held[0], "signal", signal=15))
        charged = "SELECT exit_failures FROM open_task WHERE id = %s"
        assert await w.value(charged, task.task_id) == 1
        await fail_all(bad, (await bad.claim(5)).tasks)
        await good.finish((await good.claim(2)).tasks)
        assert await phase_of(w, bad) == "quarantined"
        assert await w.value(charged, task.task_id) == 1


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
        tasks = (await bad.claim(8)).tasks
        await fail_all(bad, tasks[:2])
        assert await w.rows(PHASES) == []
        assert [line for line in (await look(w.store)).what if "judgement" in line]
        await bad.finish(tasks[2:])
        await judge_groups(w.store)
        assert not [line for line in (await look(w.store)).what if "judgement" in line]
        assert await failures(w, group) == 2
