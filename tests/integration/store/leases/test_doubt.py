"""Hosts whose tasks fail: suspected, quarantined, excused; the tasks get their attempts back (C-33)."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.groups.explain import explain_group, explain_task
from mitosis.store.groups.views import read_group
from mitosis.store.leases.doubt import judge_groups
from mitosis.store.leases.failures import lift_failures
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager, observe_manager
from tests.support.campaigns import Host, World, failed, world

PHASES = "SELECT phase FROM host_failures WHERE kind = 'tasks_failed'"


async def hosts_on(w: World, group: UUID, count: int) -> list[Host]:
    hosts = [await w.host() for _ in range(count)]
    await assign_round(w.store)
    for host in hosts:
        await host.take(group)
    return hosts


async def many(w: World, group: UUID, count: int, retries: int = 0) -> None:
    retry = RetryPolicy(max_attempts=retries + 1)
    await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=retry)] * count)


async def fail_all(host: Host, tasks: Sequence[ClaimedTask]) -> None:
    await host.report(*(failed(task, exit_code=42) for task in tasks))


async def phase(w: World) -> str | None:
    return str(found) if (found := await w.value(PHASES)) else None


@pytest.mark.spec("C-33", "S000-159")
@pytest.mark.parametrize("retries", [0, 2, 5])
async def test_a_host_whose_tasks_succeed_elsewhere_is_quarantined_and_no_task_is_charged(
    database: str, caplog: pytest.LogCaptureFixture, retries: int
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 60, retries)
        bad, good = await hosts_on(w, group, 2)
        await fail_all(bad, (await bad.claim(20)).tasks)
        assert await phase(w) == "suspected"
        assert (await bad.claim(20)).tasks == [], (
            "no more failures are reported than it had claimed"
        )
        rounds = 0
        while (await read_group(w.store, group)).tasks_unfinished:
            rounds += 1
            assert rounds < 60
            await good.finish((await good.claim(7)).tasks)
            await fail_all(bad, (await bad.claim(20)).tasks)
        info = await read_group(w.store, group)
        assert (info.tasks_succeeded, info.tasks_failed) == (60, 0)
        assert await phase(w) == "quarantined"
        (shown,) = (await get_manager(w.store, bad.manager_id)).failures
        assert "release-quarantine" in shown.line
        await w.check()
        assert await w.value("SELECT bool_and(forgiven) FROM task_failures")
        alerts = [
            vars(record)["phase"] for record in caplog.records if record.message == "host.judged"
        ]
        assert alerts == ["suspected", "quarantined"]
        await assign_round(w.store)
        lease = (await observe_manager(w.store, bad.manager_id)).lease
        assert lease is not None
        assert (lease.state, lease.end_reason) == ("ending", "quarantined")


async def quarantined(w: World, group: UUID, bad: Host, good: Host) -> None:
    """Let five tasks fail on the one host and two of them succeed on the other."""
    await fail_all(bad, (await bad.claim(5)).tasks)
    await good.finish((await good.claim(2)).tasks)
    assert await phase(w) == "quarantined"
    assert await w.value("SELECT max(exit_failures) FROM open_task") == 0, "attempts are given back"


async def probe(w: World) -> None:
    await w.rows("UPDATE host_failures SET next_at = now()")
    await w.rows("UPDATE leases SET state = 'active'")


@pytest.mark.spec("C-33")
@pytest.mark.parametrize("way", ["probe", "new incarnation", "verb", "alone"])
async def test_what_ends_a_quarantine(database: str, way: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 30)
        bad, good = await hosts_on(w, group, 2)
        await quarantined(w, group, bad, good)
        assert (await bad.claim(9)).tasks == []
        match way:
            case "probe":
                await probe(w)
                tasks = (await bad.claim(9)).tasks
                assert len(tasks) == 1
                assert (await bad.claim(9)).tasks == [], "one at a time"
                await bad.finish(tasks)
            case "new incarnation":
                await bad.hello()
            case "verb":
                kinds = (HostFailureKind.QUARANTINED,)
                await lift_failures(w.store, bad.manager_id, group, kinds)
            case "alone":
                await w.rows("UPDATE managers SET draining = true WHERE uuid = %s", good.manager_id)
                request = ReleaseRequest(
                    manager_id=good.manager_id, epoch=good.epoch, reason=ReleaseReason.MOVED
                )
                await release_lease(w.store, request)
                await judge_groups(w.store)
        assert len((await bad.claim(9)).tasks) == 9
        assert (await get_manager(w.store, bad.manager_id)).failures == []


async def test_a_probe_that_fails_is_not_charged_and_makes_the_pause_longer(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 30)
        bad, good = await hosts_on(w, group, 2)
        await quarantined(w, group, bad, good)
        for seconds in (600, 1200, 2400, 3600, 3600):
            await probe(w)
            await fail_all(bad, (await bad.claim(9)).tasks)
            left = "SELECT extract(epoch FROM next_at - now())::float8 FROM host_failures"
            assert await w.value(left) == pytest.approx(seconds, abs=5)
            assert (await bad.claim(9)).tasks == []
        info = await read_group(w.store, group)
        assert (info.tasks_failed, info.tasks_unfinished) == (0, 28)


@pytest.mark.spec("S000-151")
async def test_tasks_that_fail_everywhere_end_as_failed_and_no_host_is_quarantined(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 60)
        hosts = await hosts_on(w, group, 2)
        runs = turns = 0
        while (await read_group(w.store, group)).tasks_unfinished:
            turns += 1
            for host in hosts:
                tasks = (await host.claim(10)).tasks
                runs += len(tasks)
                await fail_all(host, tasks)
            assert runs < 80
            assert turns < 80, "tasks are left that no host is given"
        assert (await read_group(w.store, group)).tasks_failed == 60
        assert "quarantined" not in {row["phase"] for row in await w.rows(PHASES)}
        assert runs <= 66, "three tasks of each host were tried on the other"
        reasons = await w.rows("SELECT reason FROM host_failures WHERE phase = 'excused'")
        assert {"reason": "they fail on other hosts too"} in reasons
        assert {record.message for record in caplog.records} >= {"host.judged"}


@pytest.mark.spec("C-33")
async def test_a_lone_host_is_named_and_its_failures_are_final_at_once(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 9)
        (host,) = await hosts_on(w, group, 1)
        for count in (4, 3, 1):
            await fail_all(host, (await host.claim(count)).tasks)
        judged = [vars(one) for one in caplog.records if one.message == "host.judged"]
        assert [(one["manager_name"], one["phase"]) for one in judged] == [("host", "watched")]
        info = await read_group(w.store, group)
        assert info.tasks_failed == 8
        assert info.failing_host is not None
        line = "may be broken: 8 tasks failed there, and none succeeded; no other host ran any"
        assert info.failing_host.line.startswith(line)
        explained = await explain_group(w.store, group)
        (of_host,) = explained.hosts
        assert f"; host {line}" in explained.line
        assert f"; {line}" in of_host.line
        (shown,) = (await get_manager(w.store, host.manager_id)).failures
        text = (
            "may be broken: the last 8 tasks that ended there failed; no other host could try them"
        )
        assert shown.line == text
        await fail_all(host, (await host.claim(8)).tasks)
        await w.rows(
            "UPDATE group_live SET settled_at = now(), terminal_at = now(), result = 'tasks_failed',"
            " state = 'complete'"
        )
        line = line.replace("8 tasks", "9 tasks")
        assert f"; host {line}" in (await explain_group(w.store, group)).line
        assert len([one for one in caplog.records if one.message == "host.judged"]) == 1


async def test_a_failure_between_successes_is_final_and_one_at_the_end_as_well(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 4)
        host, _ = await hosts_on(w, group, 2)
        tasks = (await host.claim(4)).tasks
        await fail_all(host, tasks[:1])
        assert (await read_group(w.store, group)).tasks_failed == 0, "its host holds more tasks"
        number = await w.value("SELECT id FROM task_groups WHERE uuid = %s", group)
        explained = await explain_task(w.store, task_uuid(number, tasks[0].task_id))
        assert explained.line.startswith("it failed on host, attempt 1; this is final once")
        await host.finish(tasks[1:3])
        assert (await read_group(w.store, group)).tasks_failed == 1
        assert await phase(w) is None
        await fail_all(host, tasks[3:])
        info = await read_group(w.store, group)
        assert (info.tasks_failed, info.tasks_succeeded, info.tasks_unfinished) == (2, 2, 0)
        assert await w.rows("SELECT 1 FROM task_failures") == [], "as after any final failure"


async def test_a_doubted_failure_is_recorded_as_it_happened_when_the_group_is_cancelled(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 9)
        host, _ = await hosts_on(w, group, 2)
        await fail_all(host, (await host.claim(2)).tasks[:1])
        await w.cancel(group)
        await w.control.discard(group)
        info = await read_group(w.store, group)
        assert (info.tasks_failed, info.tasks_unfinished) == (1, 1)


@pytest.mark.spec("C-33")
async def test_a_failure_is_doubted_while_others_of_the_host_wait_for_another_attempt(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 3, retries=1)
        bad, good = await hosts_on(w, group, 2)
        await fail_all(bad, (await bad.claim(3)).tasks)
        await w.rows("UPDATE open_task SET not_before = now() - interval '1 min' WHERE id %% 3 = 0")
        (task,) = (await bad.claim(3)).tasks
        await fail_all(bad, [task])
        assert (await read_group(w.store, group)).tasks_failed == 0
        assert ("scheduler", None) in await w.pokes(), "no report may come"
        await w.rows("UPDATE host_failures SET next_at = now()")
        await judge_groups(w.store)
        assert (await read_group(w.store, group)).tasks_failed == 1, "a minute later it is final"
        assert len((await good.claim(3)).tasks) == 2


async def test_a_retry_goes_to_another_host_first_and_after_a_while_to_any(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 4, retries=3)
        first, second = await hosts_on(w, group, 2)
        task = (await first.claim(4)).tasks[0]
        await fail_all(first, [task])
        assert (await first.claim(2)).tasks == []
        assert [one.task_id for one in (await second.claim(2)).tasks] == [task.task_id]
        await fail_all(second, list(second.held.values()))
        await w.rows("UPDATE open_task SET not_before = now() - interval '5 s' WHERE state = 4")
        assert [one.task_id for one in (await second.claim(2)).tasks] == [task.task_id]


@pytest.mark.spec("C-33")
async def test_two_hosts_that_are_suspected_for_their_groups_change_places(database: str) -> None:
    """Each is right for the group of the other one; only the end of both leases lets them show it."""
    async with world(database) as w:
        groups = [await w.group("one"), await w.group("two")]
        hosts = list[Host]()
        for group in groups:
            await many(w, group, 8)
            hosts += await hosts_on(w, group, 1)
        held = [(await host.claim(9)).tasks for host in hosts]
        for host, tasks in zip(hosts, held, strict=True):
            await fail_all(host, tasks)
        await assign_round(w.store)
        for host, group in zip(hosts, groups, strict=True):
            reason = ReleaseReason.GROUP_ENDED
            request = ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=reason)
            await release_lease(w.store, request)
            await host.clean(group)
        await assign_round(w.store)
        for host, group in zip(hosts, reversed(groups), strict=True):
            await host.take(group)
            while tasks := (await host.claim(9)).tasks:
                await host.finish(tasks)
                await judge_groups(w.store)
        for group in groups:
            assert (await read_group(w.store, group)).tasks_succeeded == 8


@pytest.mark.spec("C-33")
async def test_a_suspected_host_that_still_runs_a_task_keeps_its_lease(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 20)
        bad, _ = await hosts_on(w, group, 2)
        tasks = (await bad.claim(8)).tasks
        await fail_all(bad, tasks[:7])
        for left, state in ((tasks[7:], "active"), ([], "ending")):
            await assign_round(w.store)
            view = await observe_manager(w.store, bad.manager_id)
            assert view.lease is not None
            assert view.lease.state == state
            await fail_all(bad, left)


@pytest.mark.spec("C-33")
async def test_a_failing_host_leaves_the_only_place_to_a_good_one(database: str) -> None:
    async with world(database) as w:
        group = await w.group(max_managers=1)
        await many(w, group, 20)
        (bad,) = await hosts_on(w, group, 1)
        good = await w.host()
        await fail_all(bad, (await bad.claim(9)).tasks)
        await assign_round(w.store)
        request = ReleaseRequest(
            manager_id=bad.manager_id, epoch=bad.epoch, reason=ReleaseReason.GROUP_ENDED
        )
        await release_lease(w.store, request)
        await assign_round(w.store)
        await good.take(group)
        while tasks := (await good.claim(9)).tasks:
            await good.finish(tasks)
            await judge_groups(w.store)
        assert (await read_group(w.store, group)).tasks_succeeded == 20


@pytest.mark.spec("C-33")
async def test_wrong_tasks_do_not_walk_through_a_fleet(database: str) -> None:
    """One host at a time is prepared for the group; after three of them the tasks are to blame."""
    async with world(database) as w:
        group = await w.group(max_managers=1)
        await many(w, group, 60)
        hosts = [await w.host() for _ in range(8)]
        prepared = 0
        while not (await read_group(w.store, group)).tasks_failed:
            await assign_round(w.store)
            leased = [h for h in hosts if (await observe_manager(w.store, h.manager_id)).lease]
            assert len(leased) == 1, "a host has the place"
            host = leased[0]
            await host.take(group)
            prepared += 1
            await fail_all(host, (await host.claim(9)).tasks)
            await assign_round(w.store)
            request = ReleaseRequest(
                manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.GROUP_ENDED
            )
            if (await read_group(w.store, group)).tasks_failed == 0:
                await release_lease(w.store, request)
        assert prepared <= 4


@pytest.mark.spec("C-33")
async def test_a_host_with_a_long_task_keeps_the_only_place_and_is_believed(database: str) -> None:
    async with world(database) as w:
        group = await w.group(max_managers=1)
        await many(w, group, 20)
        (bad,) = await hosts_on(w, group, 1)
        await w.host()
        long, *short = (await bad.claim(9)).tasks
        await bad.renew(started=[long])
        await w.rows("UPDATE open_task SET started_at = now() - interval '181 s' WHERE state = 1")
        await fail_all(bad, short)
        await assign_round(w.store)
        assert (await read_group(w.store, group)).tasks_failed == len(short)
