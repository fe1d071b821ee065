"""Tasks wait for others: freed by their success, cancelled by any other end (protocol P14)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from psycopg import AsyncConnection

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import (
    IdempotencyKeyReused,
    InvalidRequest,
    PartMissing,
    UpgradeInProgress,
)
from mitosis.contracts.http import RetryBody, TaskGroupSpec
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.task import Dependency, RetryPolicy, TaskSubmission
from mitosis.contracts.task_cancel import CancelTasks, TaskFilter
from mitosis.contracts.wire import SubmitAnswer
from mitosis.store.dependencies import resolve
from mitosis.store.dependencies.resolve import resolve_all, resolve_group, resolve_some
from mitosis.store.dependencies.resolver import resolving_dependencies
from mitosis.store.groups.definition import create_group
from mitosis.store.groups.deletion import delete_group
from mitosis.store.groups.explain import explain_task
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from mitosis.store.tasks import submit
from mitosis.store.tasks.cancel import cancel_tasks
from mitosis.store.tasks.retry import retry_tasks
from mitosis.store.tasks.views import list_tasks, read_task
from mitosis.store.users.accounts import create_user
from tests.support.campaigns import Host, World, failed, succeeded, world

PAID = [
    "tasks/submit.sql submit_lock",
    "tasks/submit.sql submit",
    "tasks/report.sql lock_for_report",
    "tasks/report.sql report",
]


def after(*parents: Dependency, **facts: object) -> TaskSubmission:
    return TaskSubmission(command=["true"], depends_on=list(parents), **facts)  # type: ignore[arg-type]


async def states(w: World, group: UUID) -> list[str]:
    return [task.state.value for task in (await list_tasks(w.store, group)).items]


async def kinds(w: World, group: UUID) -> list[str | None]:
    return [task.kind for task in (await list_tasks(w.store, group)).items]


async def diamond(w: World, group: UUID) -> SubmitAnswer:
    """One task, two that depend on it, one that depends on both."""
    return await w.submit_tasks(
        group, [after(), after([0, 0]), after([0, 0]), after([0, 1], [0, 2])]
    )


async def number_of(w: World, group: UUID) -> int:
    return int(await w.value("SELECT id FROM task_groups WHERE uuid = %s", group))


@pytest.mark.spec("S001-46")
async def test_a_task_is_claimable_when_all_its_parents_have_succeeded(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await diamond(w, group)).task_ids
        assert await states(w, group) == ["ready", "blocked", "blocked", "blocked"]
        host = await w.leased_host(group)
        for expected in ([ids[0]], ids[1:3], [ids[3]]):
            tasks = (await host.claim()).tasks
            assert [task.task_id for task in tasks] == expected
            for task in tasks:
                assert not (await host.claim()).tasks, "nothing that still waits"
                await host.finish([task])
                await resolve_all(w.store)
        assert await states(w, group) == ["succeeded"] * 4
        await w.check()
        assert await w.value("SELECT count(*) FROM task_parents") == 0, "all are resolved"
        assert await w.value("SELECT count(*) FROM task_edges") == 4, "kept"


@pytest.mark.spec("S001-46")
async def test_what_depends_on_a_failed_task_is_cancelled_and_names_the_first_cause(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (
            await w.submit_tasks(group, [after(), after([0, 0]), after([0, 1]), after()])
        ).task_ids
        host = await w.leased_host(group)
        first, other = (await host.claim()).tasks
        await host.report(failed(first))
        await resolve_all(w.store)
        assert await states(w, group) == ["failed", "cancelled", "cancelled", "ready"]
        assert (await kinds(w, group))[1:3] == ["dependency_failed"] * 2
        last = await read_task(w.store, task_uuid(await number_of(w, group), ids[2]))
        assert last.detail == {
            "message": f"task {ids[0]}, on which it depends, did not succeed",
            "parent": ids[1],
            "cause": ids[0],
        }
        await host.finish([other])
        await w.check()
        info = await read_group(w.store, group)
        assert (info.tasks_failed, info.tasks_cancelled, info.tasks_succeeded) == (1, 2, 1)


async def test_a_failed_attempt_that_is_tried_again_frees_and_cancels_nothing(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit_tasks(group, [after(retry=RetryPolicy(max_attempts=2)), after([0, 0])])
        host = await w.leased_host(group)
        await host.report(failed((await host.claim()).tasks[0]))
        await resolve_all(w.store)
        assert (await states(w, group))[1] == "blocked"
        await host.finish((await host.claim()).tasks)
        await resolve_all(w.store)
        assert await states(w, group) == ["succeeded", "ready"]
        await w.check()


async def by_cancel(w: World, group: UUID, parent: int, host: Host) -> None:
    await cancel_tasks(w.store, group, CancelTasks(task_ids=(parent,)))


async def by_discard(w: World, group: UUID, parent: int, host: Host) -> None:
    await w.cancel(group)
    await w.discard_all(group)


async def by_loss(w: World, group: UUID, parent: int, host: Host) -> None:
    (task,) = (await host.claim()).tasks
    await w.rows("UPDATE open_task SET lost_count = 2 WHERE id = %s", parent)
    await host.renew(started=[task])
    await host.hello()  # another process: what ran is charged, a third time


async def by_doubt(w: World, group: UUID, parent: int, host: Host) -> None:
    """Its failure is doubted, and then final."""
    (task,) = (await host.claim()).tasks
    await host.report(failed(task))
    await w.cancel(group)
    await w.discard_all(group)


@pytest.mark.parametrize("end", [by_cancel, by_discard, by_loss, by_doubt])
async def test_every_way_a_task_can_end_resolves_its_children_in_another_group(
    database: str, end: Callable[[World, UUID, int, Host], Awaitable[None]]
) -> None:
    async with world(database) as w:
        group, other = await w.group("parents"), await w.group("children")
        (parent,) = (await w.submit_tasks(group, [after()])).task_ids
        await w.submit_tasks(other, [after(parent), after([0, 0])])
        host = await w.leased_host(group)
        await resolve_all(w.store)
        assert await states(w, other) == ["blocked", "blocked"]
        await end(w, group, parent, host)
        await resolve_all(w.store)
        assert await states(w, other) == ["cancelled", "cancelled"]
        assert await kinds(w, other) == ["dependency_failed"] * 2
        await w.check()


async def test_parents_that_have_ended_contribute_at_once(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        good, bad, running = (await w.submit(group, 3)).task_ids
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        await host.finish(tasks[:1])
        await host.report(failed(tasks[1]))
        answer = await w.submit_tasks(group, [after(good), after(good, bad), after(good, running)])
        assert (await states(w, group))[3:] == ["ready", "cancelled", "blocked"]
        again = await w.submit_tasks(group, [after(bad), after(good, good, running)])
        assert (await states(w, group))[6:] == ["cancelled", "blocked"]
        await host.finish(tasks[2:])
        await resolve_all(w.store)
        ready = {answer.task_ids[0], answer.task_ids[2], again.task_ids[1]}
        assert {task.task_id for task in (await host.claim()).tasks} == ready
        await w.check()


async def test_a_child_submitted_while_others_are_resolved_is_resolved_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent ends after the submit has looked for what is to be resolved, and before it locks."""

    async def nothing(*_: object) -> None: ...

    async with world(database) as w:
        group = await w.group()
        parent, other = (await w.submit(group, 2)).task_ids
        await w.submit_tasks(group, [after(parent, other)] * 5)
        host = await w.leased_host(group)
        await host.finish((await host.claim(1)).tasks)
        number = await number_of(w, group)
        async with w.database.transaction() as connection:
            await resolve_some(connection, number, most=2)
        monkeypatch.setattr(submit, "resolve_earlier", nothing)
        await w.submit_tasks(group, [after(parent, other)])
        await resolve_all(w.store)
        waiting = await w.rows("SELECT waits_for FROM open_task WHERE state = 2")
        assert [row["waits_for"] for row in waiting] == [1] * 6
        await host.finish((await host.claim()).tasks)
        await resolve_all(w.store)
        assert (await states(w, group))[2:] == ["ready"] * 6


@pytest.mark.parametrize("most", [1, 2, 3, 7])
async def test_any_number_of_edges_at_once_resolves_all(
    database: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def few(connection: object, group: int) -> None:
        await resolve_some(connection, group, most)  # type: ignore[arg-type]

    monkeypatch.setattr(resolve, "resolve_some", few)
    async with world(database) as w:
        group = await w.group()
        fan_in: Sequence[Dependency] = [[0, at] for at in range(5)]
        tasks = [after()] * 5 + [after(*fan_in)] * 4 + [after([0, 0])] * 3
        await w.submit_tasks(group, tasks)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await resolve_group(w.store, await number_of(w, group))
        assert await states(w, group) == ["succeeded"] * 5 + ["ready"] * 7
        await w.check()


async def test_dependencies_over_parts_and_their_refusals(database: str) -> None:
    async with world(database) as w:
        group, other = await w.group("one"), await w.group("two")
        with pytest.raises(PartMissing) as missing:
            await w.submit_tasks(group, [after([0, 0])], idempotency_key="k", part=1)
        assert missing.value.facts["field"] == "tasks[0].depends_on[0]"
        await w.submit(group, 2, idempotency_key="k")
        last = [after([0, 1]), after([1, 0])]
        first = await w.submit_tasks(group, last, idempotency_key="k", part=1)
        assert await states(w, group) == ["ready", "ready", "blocked", "blocked"]
        again = await w.submit_tasks(group, last, idempotency_key="k", part=1)
        assert (again.task_ids, again.replayed) == (first.task_ids, True)
        with pytest.raises(IdempotencyKeyReused):
            await w.submit_tasks(group, [after([0, 0]), after([1, 0])], idempotency_key="k", part=1)
        refused = [
            ([after(), after([0, 1])], "tasks[1].depends_on[0]", "earlier task"),
            ([after([0, 0])], "tasks[0].depends_on[0]", "earlier task"),
            ([after(), after(first.task_ids[0], 999_999)], "tasks[1].depends_on[1]", "999999"),
            ([after(), after([3, 0])], "tasks[1].depends_on[0]", "idempotency_key"),
        ]
        for tasks, field, text in refused:
            with pytest.raises(InvalidRequest, match=text) as invalid:
                await w.submit_tasks(other, tasks)
            assert invalid.value.facts["field"] == field
        with pytest.raises(InvalidRequest, match="2 tasks only"):
            await w.submit_tasks(group, [after([0, 2])], idempotency_key="k", part=2)
        assert await w.value("SELECT count(*) FROM task") == 4, "refused whole"
        await w.check()


async def test_a_task_of_another_user_group_cannot_be_depended_on(database: str) -> None:

    async with world(database) as w:
        group = await w.group()
        (mine,) = (await w.submit(group)).task_ids
        bob = await create_user(w.store, "bob")
        theirs = await create_group(w.store, TaskGroupSpec(name="theirs"), bob.user_id)
        with pytest.raises(InvalidRequest, match=f"there is no task {mine}"):
            await w.submit_tasks(theirs.task_group_id, [after(mine)])


async def test_a_duplicate_takes_no_dependencies_and_the_answer_says_so(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        (unfinished,) = (await w.submit_tasks(group, [after(dedup_key="d")])).task_ids
        tasks = [after(), after([0, 0], dedup_key="d"), after([0, 1]), after([0, 0], dedup_key="e")]
        answer = await w.submit_tasks(group, [*tasks, after([0, 3], [0, 1], dedup_key="e")])
        assert answer.depends_on_ignored == [1, 4]
        assert answer.task_ids[1] == unfinished
        assert answer.task_ids[4] == answer.task_ids[3]
        assert answer.created == 3
        assert await states(w, group) == ["ready", "ready", "blocked", "blocked"]
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await resolve_all(w.store)
        assert await states(w, group) == ["succeeded"] * 2 + ["ready"] * 2
        await w.check()


async def test_blocked_tasks_are_listed_counted_cancelled_and_explained(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await diamond(w, group)).task_ids
        number = await number_of(w, group)
        shown = await read_task(w.store, task_uuid(number, ids[3]))
        assert (shown.state, shown.waits_for) == ("blocked", 2)
        explained = await explain_task(w.store, task_uuid(number, ids[3]))
        assert explained.code == "blocked"
        assert (
            explained.line
            == f"it waits for 2 tasks to succeed: {ids[1]} is blocked, {ids[2]} is blocked"
        )
        first = await explain_task(w.store, task_uuid(number, ids[1]))
        assert first.line == f"it waits for 1 task to succeed: {ids[0]} is ready"
        blocked = TaskFilter(states=("blocked",))
        done = await cancel_tasks(w.store, group, CancelTasks(filter=blocked, dry_run=True))
        assert done.cancelled == 3
        await cancel_tasks(w.store, group, CancelTasks(filter=blocked))
        assert await states(w, group) == ["ready"] + ["cancelled"] * 3
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await resolve_all(w.store)
        await w.check()
        assert await w.value("SELECT count(*) FROM task_parents") == 0


async def test_only_blocked_tasks_ask_for_no_host(database: str) -> None:
    async with world(database) as w:
        parents, children = await w.group("parents"), await w.group("children")
        (parent,) = (await w.submit(parents)).task_ids
        await w.submit_tasks(children, [after(parent)])
        host = await w.leased_host(parents)
        idle = await w.host()
        await assign_round(w.store)
        assert await w.value("SELECT count(*) FROM leases") == 1
        await w.pokes()
        await host.finish((await host.claim()).tasks)
        await resolve_all(w.store)
        assert ("scheduler", None) in await w.pokes()
        await assign_round(w.store)
        await idle.take(children)
        assert len((await idle.claim()).tasks) == 1


async def test_a_group_ends_and_is_deleted_with_its_edges(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await diamond(w, group)
        await w.cancel(group)
        await w.discard_all(group)
        await resolve_all(w.store)
        assert await states(w, group) == ["cancelled"] * 4
        await w.check()
        assert (await w.control.settle(group)).settled
        await delete_group(w.store, group)
        await w.delete_rows()
        for table in ("task_edges", "task_parents", "task"):
            assert await w.value(f"SELECT count(*) FROM {table}") == 0, table  # noqa: S608


@pytest.mark.spec("S001-46")
async def test_an_older_process_that_runs_refuses_dependencies(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.rows(
            "INSERT INTO live_processes (id, kind, version, host_name, pid, knows, beat_at)"
            " VALUES (gen_random_uuid(), 'control', '0.0.1', 'old', 7, '{\"task_states\": [0, 1, 4]}', now())"
        )
        with pytest.raises(UpgradeInProgress, match=r"version 0\.0\.1 on old"):
            await w.submit_tasks(group, [after(), after([0, 0])])
        assert await w.value("SELECT count(*) FROM task") == 0
        await w.submit_tasks(group, [after()])


async def test_a_host_that_is_given_back_frees_nothing(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit_tasks(group, [after(), after([0, 0])])
        host = await w.leased_host(group)
        await host.claim()
        request = ReleaseRequest(
            manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
        )
        await w.rows("UPDATE leases SET alive_until = now() - interval '1 s'")
        await release_lease(w.store, request)
        await resolve_all(w.store)
        assert await states(w, group) == ["ready", "blocked"]


@pytest.mark.spec("S001-46")
async def test_a_retry_takes_along_what_was_cancelled_with_a_task_and_keeps_the_order(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        tasks = [after(), after(), after([0, 0], [0, 1]), after([0, 2]), after()]
        good, bad, *_, single = (await w.submit_tasks(group, tasks)).task_ids
        host = await w.leased_host(group)
        for task in (await host.claim()).tasks:
            await host.report(failed(task) if task.task_id == bad else succeeded(task))
        await resolve_all(w.store)
        assert await states(w, group) == [
            "succeeded",
            "failed",
            "cancelled",
            "cancelled",
            "succeeded",
        ]
        other = RetryBody(idempotency_key="o", reasons=[FailureKind.TIMEOUT])
        assert not (await retry_tasks(w.store, group, group, other)).task_ids
        body = RetryBody(idempotency_key="k", limit=1)
        for expected in (["ready"], ["ready", "blocked"], ["ready", "blocked", "blocked"]):
            part = await retry_tasks(w.store, group, group, body)
            again = await retry_tasks(w.store, group, group, body)
            assert (part.task_ids, part.retry_of) == (again.task_ids, again.retry_of)
            assert (await states(w, group))[5:] == expected
            body = body.model_copy(update={"after": part.next})
        for _ in range(3):
            await host.finish((await host.claim()).tasks)
            await resolve_all(w.store)
        assert (await states(w, group))[5:] == ["succeeded"] * 3
        assert (
            await w.value(
                "SELECT count(*) FROM task_result WHERE task_id IN (%s, %s)", good, single
            )
            == 2
        )
        await w.check()


def header(columns: int) -> int:
    """Return the bytes before the data of a row with NULLs: 23, a bit per column, filled up to 8."""
    return -(-(23 + -(-columns // 8)) // 8) * 8


@pytest.mark.spec("S001-46")
async def test_tasks_without_dependencies_pay_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    execute = AsyncConnection.execute

    async def recorded(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(" ".join(str(query).split()[1:3]))
        return await execute(self, query, *args, **kwargs)

    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        monkeypatch.setattr(AsyncConnection, "execute", recorded)
        await w.submit(group, 50, idempotency_key="k")
        await host.finish((await host.claim()).tasks)
        monkeypatch.undo()
        assert [one for one in names if ".sql" in one] == PAID, (
            "the same statements as before there were dependencies"
        )
        for table in ("task_edges", "task_parents", "step_ends", "step_tasks"):
            assert await w.value(f"SELECT count(*) FROM {table}") == 0  # noqa: S608
        (row,) = await w.rows(
            "SELECT count(*) FILTER (WHERE NOT attisdropped) AS now FROM pg_attribute"
            " WHERE attrelid = 'open_task'::regclass AND attnum > 0"
        )
        assert header(row["now"]) == header(row["now"] - 3), "no byte more in a row"
        trigger = await w.value(
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'open_task_parent_ended'"
        )
        assert "WHEN (old.has_children)" in trigger, "fired for parents only"
        trigger = await w.value(
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'open_task_of_step_ended'"
        )
        assert "WHEN ((old.step_id IS NOT NULL))" in trigger, "fired for tasks of runs only"


async def test_a_notification_resolves_in_each_api_process_and_a_lost_one_after_a_reconnect(
    database: str,
) -> None:
    async with world(database) as w, resolving_dependencies(w.store):
        group = await w.group()
        await w.submit_tasks(group, [after(), after([0, 0]), after([0, 1])])
        host = await w.leased_host(group)
        for _ in range(3):
            (task,) = (await host.claim(wait=20)).tasks
            await host.finish([task])
        await w.submit_tasks(group, [after(), after([0, 0])])
        await w.rows("ALTER TABLE open_task DISABLE TRIGGER open_task_parent_ended")
        await host.finish((await host.claim()).tasks)
        await w.rows("UPDATE task_parents SET outcome = 'succeeded'")
        await w.rows("ALTER TABLE open_task ENABLE TRIGGER open_task_parent_ended")
        assert not (await host.claim()).tasks
        w.wake.wake_all()
        assert len((await host.claim(wait=20)).tasks) == 1
