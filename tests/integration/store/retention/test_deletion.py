"""What is kept for how long (C-34): old bookkeeping goes in small chunks, nothing that is needed goes."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from psycopg.sql import SQL, Identifier

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import TaskGroupClosed
from mitosis.contracts.http import RetryBody
from mitosis.contracts.retention import RETENTION_KINDS, RetentionTerms
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.task_cancel import CancelTasks
from mitosis.contracts.wire import ReportStatus
from mitosis.store.dependencies.resolve import resolve_all
from mitosis.store.groups.deletion import delete_chunk, delete_group
from mitosis.store.groups.views import list_groups, read_group
from mitosis.store.managers.changes import delete_manager
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from mitosis.store.pg.tables import METADATA
from mitosis.store.retention.deletion import (
    PASS_EVERY_SECONDS,
    PAUSE_SECONDS,
    ExpiredRows,
    add_kinds,
    delete_expired_chunk,
    show_retention,
)
from mitosis.store.tasks.cancel import cancel_tasks
from mitosis.store.tasks.results import wait_for_results
from mitosis.store.tasks.retry import retry_tasks
from tests.support.aging import delete_expired, time_passes
from tests.support.campaigns import Host, World, failed, held, succeeded, world
from tests.support.worker_services import healthy, service_group, submit_named, task

BOOKKEEPING = (
    "leases",
    "environments",
    "hook_runs",
    "task_failures",
    "submission",
    "host_failures",
    "environment_durations",
)
HOOK = {"state": "failed", "started_at": "2026-01-01T00:00:00Z", "message": "no"}


async def ended(host: Host, reason: ReleaseReason = ReleaseReason.GROUP_ENDED) -> None:
    await release_lease(
        host.world.store,
        ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=reason),
    )


async def lost(host: Host) -> None:
    """The host falls silent, and is lost."""
    await host.world.rows(
        "UPDATE manager_live AS c SET last_contact_at = now() - interval '1 hour',"
        " contact_since = now() - interval '2 hours' FROM managers AS m"
        " WHERE m.id = c.manager_id AND m.uuid = %s",
        host.manager_id,
    )
    await host.world.rows("UPDATE leases SET alive_until = now() WHERE epoch = %s", host.epoch)
    await ended(host, ReleaseReason.LOST)


async def settled_group(w: World, name: str = "campaign", tasks: int = 3) -> UUID:
    """One that has left something in every table: failures, a hook run, a submission."""
    group = await w.group(name, environment_teardown_hook={"command": ["true"]})
    await w.submit(group, tasks, idempotency_key="k")
    host = await w.leased_host(group)
    await host.finish((await host.claim()).tasks)
    await w.rows(
        "INSERT INTO task_failures (task_id, group_id, attempt, kind)"
        " SELECT t.id, t.group_id, 0, 'exit_code' FROM task AS t"
        " WHERE t.group_id = (SELECT max(id) FROM task_groups)"
    )
    await w.close(group)
    await w.control.finalize(group)
    await ended(host)
    await host.clean(group, hook=HOOK, degraded=True)
    assert (await w.control.settle(group)).settled
    await say_goodbye(w.store, host.manager_id, None, host.incarnation)
    return group


async def counts(w: World, *tables: str) -> dict[str, int]:
    counting = SQL("SELECT count(*) FROM {}")
    return {table: await w.value(counting.format(Identifier(table))) for table in tables}


@pytest.mark.spec("C-34")
async def test_bookkeeping_of_settled_groups_goes_after_30_days_and_results_stay(
    database: str,
) -> None:
    async with world(database) as w:
        group = await settled_group(w)
        before = await counts(w, *BOOKKEEPING)
        assert all(before[name] for name in ("leases", "hook_runs", "task_failures", "submission"))
        await time_passes(w, 29)
        await delete_expired(w)
        assert await counts(w, *BOOKKEEPING) == before
        repeated = await w.submit(group, 3, idempotency_key="k")
        assert len(repeated.task_ids) == 3, "the key is still known"
        await time_passes(w, 2)
        await delete_expired(w)
        left = await counts(w, *BOOKKEEPING)
        del left["environment_durations"]  # those of the host alone stay
        assert set(left.values()) == {0}
        assert len((await wait_for_results(w.store, group)).items) == 3
        assert (await read_group(w.store, group)).tasks_total == 3
        with pytest.raises(TaskGroupClosed):
            await w.submit(group, 3, idempotency_key="k")


async def test_a_journal_that_returns_after_months_is_answered_as_ever(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        first, second = (await host.claim()).tasks
        await lost(host)
        await time_passes(w, 90)
        await delete_expired(w)
        answer = await host.report(succeeded(first))
        assert answer.statuses == [ReportStatus.COMMITTED]
        await host.hello()  # it is in contact from now on, and may be handing in its journal
        await w.rows("UPDATE manager_live SET contact_since = now() - interval '11 minutes'")
        await delete_expired(w)
        answer = await host.report(succeeded(second))
        assert answer.statuses == [ReportStatus.COMMITTED], "nobody has claimed it since"
        for minutes, left in ((9, 1), (11, 0)):
            await w.rows(
                "UPDATE manager_live SET contact_since = now() - make_interval(mins => %s)", minutes
            )
            await delete_expired(w)
            assert await w.value("SELECT count(*) FROM leases WHERE state = 'ended'") == left


async def test_hosts_that_come_and_go_leave_a_bounded_number_of_leases(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        for _ in range(5):
            await host.hello()
        assert await w.value("SELECT count(*) FROM leases") == 6
        await time_passes(w, 31)
        await delete_expired(w, 2)
        assert await w.value("SELECT count(*) FROM leases") == 1
        await host.finish((await host.claim()).tasks)
        assert (await read_group(w.store, group)).tasks_succeeded == 1


@pytest.mark.spec("C-34")
async def test_a_deleted_host_goes_when_no_kept_group_has_been_served_by_it(database: str) -> None:
    async with world(database) as w:
        group = await settled_group(w)
        unused = await w.host()
        for host in await w.rows("SELECT uuid FROM managers"):
            await delete_manager(w.store, host["uuid"])
        await time_passes(w, 29)
        await delete_expired(w)
        assert await w.value("SELECT count(*) FROM managers") == 2
        named = (await wait_for_results(w.store, group)).items[0].manager_name
        for months in range(3):
            await time_passes(w, 31)
            await delete_expired(w)
            assert await w.value("SELECT count(*) FROM leases") == 0
            left = await w.rows("SELECT uuid FROM managers")
            assert len(left) == 1
            assert left[0]["uuid"] != unused.manager_id
            assert (await wait_for_results(w.store, group)).items[0].manager_name == named, months
        await delete_group(w.store, group)
        await delete_expired(w)
        assert await counts(w, "managers", "manager_live", "group_hosts") == {
            "managers": 0,
            "manager_live": 0,
            "group_hosts": 0,
        }


async def test_a_deleted_host_stays_where_its_first_leases_are_not_known(database: str) -> None:
    """It was registered before ended leases left which groups it has served."""
    async with world(database) as w:
        old = await w.host()
        await w.rows("UPDATE managers SET groups_known = false")
        await delete_manager(w.store, old.manager_id)
        await time_passes(w, 31)
        await delete_expired(w)
        assert await w.value("SELECT count(*) FROM managers") == 1


async def test_what_decides_the_result_of_an_unsettled_group_stays(database: str) -> None:
    async with world(database) as w:
        group = await w.group(environment_teardown_hook={"command": ["true"]})
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await ended(host, ReleaseReason.MOVED)
        for hour in range(3):
            if hour == 0:
                await host.clean(group, hook=HOOK, degraded=True)
            else:
                await w.rows(
                    "INSERT INTO hook_runs (manager_id, group_id, kind, state, started_at)"
                    " SELECT manager_id, group_id, kind, state, started_at + %s FROM hook_runs LIMIT 1",
                    timedelta(hours=hour),
                )
        assert await w.value("SELECT bool_or(degraded) FROM environments WHERE state = 'gone'")
        await time_passes(w, 400)
        await delete_expired(w)
        assert await counts(w, "hook_runs", "environments") == {"hook_runs": 1, "environments": 1}
        await w.close(group)
        await w.control.finalize(group)
        assert (await w.control.settle(group)).result == "teardown_degraded"
        await time_passes(w, 31)
        await delete_expired(w)
        assert await counts(w, "hook_runs", "environments") == {"hook_runs": 0, "environments": 0}


async def test_a_debt_outlives_its_group_and_its_bookkeeping(database: str) -> None:
    async with world(database) as w:
        group = await w.group(environment_teardown_hook={"command": ["clean"]})
        await w.submit(group, 1)
        host = await w.leased_host(group)
        await host.claim()
        await w.cancel(group)
        await lost(host)
        await w.discard_all(group)
        assert (await w.control.settle(group)).settled
        await delete_group(w.store, group)
        while await delete_chunk(w.store, 10):
            pass
        await time_passes(w, 365)
        await delete_expired(w)
        assert await counts(w, "deleted_groups", "environments") == {
            "deleted_groups": 1,
            "environments": 1,
        }
        await w.rows("UPDATE manager_live SET last_contact_at = now()")  # it owes it all the same
        for _ in range(2):
            await delete_expired(w)
        assert await counts(w, "deleted_groups", "leases") == {"deleted_groups": 1, "leases": 0}
        assert (await host.hello()).owed == (group,)
        await host.clean(group)
        await time_passes(w, 31)
        await delete_expired(w)
        await delete_expired(w)
        assert set((await counts(w, "deleted_groups", "environments", "leases")).values()) == {0}


async def test_the_last_lease_and_registration_of_a_worker_service_stay(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w, "service")
        for _ in range(2):
            service = await healthy(w, "one", task(), slots=2)
            await submit_named(w, group, 1)
            await service.report(*await service.claim(1))
        service = await healthy(w, "one", task(), slots=2)
        await submit_named(w, group, 1)
        given = await service.claim(1)
        await service.goodbye()
        other = await healthy(w, "two", task())
        await other.report(*await other.claim(1))
        await time_passes(w, 90)
        await delete_expired(w)
        assert await w.value("SELECT count(*) FROM worker_registrations") == 2
        answer = await service.report(*given)
        assert ReportStatus.UNKNOWN not in answer.statuses


@pytest.mark.spec("C-34", "S002-212")
async def test_settled_groups_are_deleted_by_policy_and_their_sums_stay(database: str) -> None:
    async with world(database) as w:
        old, kept = await settled_group(w), await w.group("open")
        await time_passes(w, 400)
        await delete_expired(w)
        names = {one.name for one in (await list_groups(w.store, w.user_id)).items}
        assert names == {"campaign", "open"}, "kept until deleted: no policy is set"
        terms = RetentionTerms(task_groups=timedelta(days=90))
        w.store = replace(w.store, retention=terms)
        await w.rows("UPDATE user_groups SET keep_seconds = 'Infinity'")
        await delete_expired(w)
        assert await w.value("SELECT count(*) FROM task_groups") == 2
        await w.rows("UPDATE user_groups SET keep_seconds = NULL")
        await delete_expired(w)
        assert [one.task_group_id for one in (await list_groups(w.store, w.user_id)).items] == [
            kept
        ]
        while await delete_chunk(w.store, 10):
            pass
        assert set((await counts(w, "task", "task_result")).values()) == {0}
        (sums,) = await w.rows("SELECT * FROM deleted_group_days")
        assert (sums["groups"], sums["tasks"], sums["succeeded"]) == (1, 3, 3)
        assert sums["result"] == "teardown_degraded"
        assert old != kept


async def test_a_pass_goes_on_where_it_was_interrupted(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.leased_host(group)
        for _ in range(9):
            await host.hello()
        await time_passes(w, 31)
        await w.rows("UPDATE leases SET ended_at = ended_at + make_interval(secs => epoch)")
        await add_kinds(w.store)
        await w.rows("UPDATE retention SET next_at = now() + interval '1 h' WHERE kind <> 'leases'")
        assert await delete_expired_chunk(w.store, 2)
        place = await w.rows("SELECT seen_to, deleted FROM retention WHERE kind = 'leases'")
        async with held(database) as open_one:
            assert await delete_expired_chunk(w.on(open_one).store, 2)
            assert not await delete_expired_chunk(w.store, 2), "another process has it"
            await open_one.held.rollback()  # as by the death of the process
        assert await w.rows("SELECT seen_to, deleted FROM retention WHERE kind = 'leases'") == place
        assert place[0]["deleted"] == 2
        left = [await w.value("SELECT count(*) FROM leases")]
        while await delete_expired_chunk(w.store, 2):
            left.append(await w.value("SELECT count(*) FROM leases"))
        assert left == [8, 6, 4, 2, 1, 1], "two at most by each chunk"
        shown = {one.kind: one for one in (await show_retention(w.store)).kinds}
        assert set(shown) == set(RETENTION_KINDS)
        assert (shown["leases"].deleted_in_all, shown["leases"].deleted_last) == (9, 9)
        assert not shown["leases"].in_progress


async def test_each_call_works_for_a_while_and_says_when_to_call_again(database: str) -> None:
    async with world(database) as w:
        expired = ExpiredRows(w.store)
        assert await expired.delete(0.0) == PAUSE_SECONDS
        again = await expired.delete(60.0)
        assert PASS_EVERY_SECONDS - 60 < again <= PASS_EVERY_SECONDS
        await w.rows(
            "UPDATE retention SET next_at = now() + interval '700 s' WHERE kind = 'leases'"
        )
        assert 600 < await expired.delete(60.0) <= 700


async def varied_group(w: World, name: str) -> None:
    """One whose tasks depended on each other, were stopped while they ran, failed and were repeated."""
    group = await w.group(name)
    tasks = [TaskSubmission(command=["true"])] * 3
    waits = TaskSubmission(command=["true"], depends_on=[[0, 2]])
    await w.submit_tasks(group, [*tasks, waits])
    host = await w.leased_host(group)
    stopped, failing, last = (await host.claim()).tasks
    await cancel_tasks(w.store, group, CancelTasks(task_ids=(stopped.task_id,)))
    await host.finish([last])
    await host.report(failed(failing, exit_code=1))
    repeated = RetryBody(idempotency_key="k", limit=100)
    assert (await retry_tasks(w.store, group, group, repeated)).task_ids
    await resolve_all(w.store)
    await host.finish((await host.claim()).tasks)
    await w.close(group)
    await w.control.finalize(group)
    await ended(host)
    await host.clean(group)
    assert (await w.control.settle(group)).settled
    await say_goodbye(w.store, host.manager_id, None, host.incarnation)


async def services_come_and_go(w: World, week: int) -> None:
    """With ids that never return: one has executed a task of a group that ends, one has found none."""
    group = await service_group(w, f"passing-{week}")
    for worker_id in (f"pod-{week}-a", f"pod-{week}-b"):
        await submit_named(w, group, 1, "images/resize@2")
        passing = await healthy(w, worker_id, task(version="2"))
        if worker_id.endswith("a"):
            await passing.report(*await passing.claim(1))
        await passing.goodbye()
    lasting = await healthy(w, "lasting", task(version="2"), task(f"of-{week}"))
    await lasting.report(*await lasting.claim(1))
    await w.close(group)
    await w.control.finalize(group)
    assert (await w.control.settle(group)).settled


KEPT_EACH_WEEK = {
    "task": 3,
    "task_result": 3,
    "service_claims": 1,
    "submission": 1,
    "named_tasks": 1,
}
"""Rows of what no user has deleted: tasks and submissions of the groups that go on, names of tasks."""
VARIED = ("task_edges", "task_retries", "task_failures", "hook_runs", "environments")
BOUNDED_BY_THEMSELVES = {"fleet_changes", "scheduling_decisions"}
"""Ten minutes of changes, 500 decisions: tests of their own prove it."""


async def test_weeks_of_use_leave_bounded_tables(database: str) -> None:
    """Each week the same: groups that end and are deleted, hosts and services that restart, come and go."""
    sizes, filled = [], set()
    async with world(database) as w:
        terms = RetentionTerms(bookkeeping=timedelta(days=7), task_groups=timedelta(days=7))
        w.store = replace(w.store, retention=terms)
        lasting = await w.group("lasting")
        service = await service_group(w, "service")
        await w.submit(lasting, 1)
        host = await w.leased_host(lasting)
        for week in range(6):
            await w.submit(lasting, 2, idempotency_key=str(week))
            await host.hello()
            await host.finish((await host.claim()).tasks)
            for day in range(2):
                await settled_group(w, f"campaign-{week}-{day}")
            await varied_group(w, f"varied-{week}")
            filled |= {table for table, rows in (await counts(w, *VARIED)).items() if rows}
            one = await healthy(w, "one", task())
            await submit_named(w, service, 1)
            await one.report(*await one.claim(1))
            await services_come_and_go(w, week)
            for leaves in await w.rows(
                "SELECT uuid FROM managers WHERE deleted_at IS NULL AND uuid <> %s", host.manager_id
            ):
                await delete_manager(w.store, leaves["uuid"])
            await time_passes(w, 7.1)
            await delete_expired(w)
            while await delete_chunk(w.store, 100):
                pass
            await w.pokes()
            sizes.append(await counts(w, *(METADATA.tables.keys() - BOUNDED_BY_THEMSELVES)))
            for table, kept in KEPT_EACH_WEEK.items():
                sizes[-1][table] -= kept * (week + 1)
            sizes[-1]["environment_durations"] -= await w.value(
                "SELECT count(*) FROM environment_durations WHERE group_id IS NULL"
            )
    assert filled == {*VARIED}
    courses = {table: [each[table] for each in sizes[2:]] for table in sizes[0]}
    assert {table: course for table, course in courses.items() if len(set(course)) > 1} == {}
