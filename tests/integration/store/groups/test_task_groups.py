"""Creating, listing, changing and watching task groups, and the one line that says why nothing happens."""

from datetime import timedelta

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
)
from mitosis.contracts.http import TaskGroupUpdate
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.lifecycle import TaskGroupState, TaskState
from mitosis.store.groups.assignment import (
    add_managers,
    remove_managers,
)
from mitosis.store.groups.definition import find_group, update_group
from mitosis.store.groups.deletion import delete_group
from mitosis.store.groups.views import GroupFilter, ids_of_page, list_groups, read_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.tasks.views import list_tasks, read_task
from mitosis.store.users.accounts import add_member, create_user, ensure_admin
from tests.support.campaigns import failed, hook, succeeded, world


@pytest.mark.spec("S002-23", "S002-63", "S002-70", "S002-148")
async def test_a_group_keeps_what_it_was_given_and_its_name(database: str) -> None:
    async with world(database) as w:
        plan = WorkerAllocationPlan.model_validate(
            {"worker_count": 2, "cpu_binding": {"strategy": "exclusive", "cores": [0, 1]}}
        )
        group = await w.group(
            "a",
            tags={"gpu", "big"},
            labels={"x"},
            priority=-5,
            worker_allocation_plan=plan,
            environment_setup_hook={"command": ["prepare"], "timeout": "1m"},
            auto_close_timeout="30m",
            max_managers=3,
        )
        assert ("task_group", group) in await w.pokes(), "its workflow starts by the outbox"
        info = await read_group(w.store, group)
        assert (info.name, info.group_name, info.state, info.priority) == ("a", "alice", "open", -5)
        assert (info.tags, info.labels, info.max_managers) == (["big", "gpu"], ["x"], 3)
        assert info.worker_allocation_plan.model_dump() == plan.model_dump()
        assert info.environment_setup_hook is not None
        assert info.environment_setup_hook.timeout == timedelta(minutes=1)
        assert info.auto_close_timeout == timedelta(minutes=30)
        assert info.workflow_id == f"task-group/{group}"
        assert await find_group(w.store, "alice/a") == group
        assert await find_group(w.store, str(group)) == group
        for bad in ("alice/b", "nonsense", "bob/a"):
            with pytest.raises(NotFound):
                await find_group(w.store, bad)
        with pytest.raises(AlreadyExists):
            await w.group("a")
        with pytest.raises(NotFound):
            await w.group("b", group_name="nobody")
        crowded = {"worker_count": 3, "cpu_binding": {"strategy": "exclusive", "cores": [0, 1]}}
        with pytest.raises(InvalidRequest):
            await w.group("b", worker_allocation_plan=crowded)


async def test_lists_are_pages_of_what_one_may_read(database: str) -> None:
    async with world(database) as w:
        groups = [await w.group(f"g-{i}", tags={"t", str(i % 2)}) for i in range(5)]
        bob = await create_user(w.store, "bob")
        admin = await ensure_admin(w.store, "admin")
        await w.close(groups[0])
        await w.close(groups[1])
        await w.control.finalize(groups[1])
        await w.control.settle(groups[1])
        page = await list_groups(w.store, w.user_id, limit=2)
        assert [item.task_group_id for item in page.items] == groups[:2:-1]
        rest = await list_groups(w.store, w.user_id, after=page.next, limit=10)
        assert ([item.task_group_id for item in rest.items], rest.next) == (groups[2::-1], None)
        assert (await list_groups(w.store, bob.user_id)).items == []
        assert len((await list_groups(w.store, admin.user_id)).items) == 5
        await add_member(w.store, "alice", "bob", "read")
        assert len((await list_groups(w.store, bob.user_id)).items) == 5

        async def found(**which: object) -> list[str]:
            shown = await list_groups(w.store, w.user_id, GroupFilter(**which))  # type: ignore[arg-type]
            return [item.name for item in shown.items]

        assert await found(states=[TaskGroupState.CLOSED]) == ["g-0"]
        assert await found(settled=True) == ["g-1"]
        assert await found(tags=["1"]) == ["g-3", "g-1"]
        assert await found(tags=["t", "1"], settled=False) == ["g-3"]
        assert await found(labels=["x"]) == []
        assert await found(states=[TaskGroupState.OPEN], tags=["0"], name="g-*") == ["g-4", "g-2"]
        assert await found(name="g-2") == ["g-2"]
        assert len(await found(name="g-*")) == 5
        assert await found(name="g_*") == []
        for after in ("x", "W10", page.next and page.next[:-2]):
            with pytest.raises(InvalidRequest):
                await list_groups(w.store, w.user_id, after=after)
        with pytest.raises(InvalidRequest):
            await list_groups(w.store, w.user_id, limit=501)


@pytest.mark.new_sessions
@pytest.mark.parametrize(
    ("settled", "filters"),
    [
        (None, {}),
        (None, {"after": 5_000}),
        (False, {}),
        (None, {"states": ["open"]}),
        (None, {"tags": ["tag-7"]}),
        (False, {"states": ["open", "closed"], "tags": ["all"], "after": 5_000}),
    ],
    ids=["all", "next page", "unsettled", "open", "rare tag", "several filters"],
)
async def test_a_page_of_many_groups_reads_indexes_only(
    database: str, settled: bool | None, filters: dict[str, object]
) -> None:
    async with world(database) as w:
        await w.group("g-0")
        await w.rows(
            "WITH made AS (INSERT INTO task_groups"
            " (name, user_group_id, creator_id, worker_allocation_plan, tags)"
            " SELECT 'g-' || n, user_group_id, creator_id, worker_allocation_plan,"
            " ARRAY['all', 'tag-' || n]"
            " FROM task_groups, generate_series(1, 10000) AS n RETURNING id)"
            " INSERT INTO group_live (group_id) SELECT id FROM made"
        )
        await w.rows("ANALYZE task_groups, group_live")
        for everything in (True, False):
            page = ids_of_page(settled, frozenset(filters), everything=everything)
            values = {**page.parameters, "viewer": w.user_id, "limit": 51, **filters}
            database_ = w.database
            reading = (
                database_.connection()
                if "tags" in filters
                else database_.in_index_order(sorts=False)
            )
            async with reading as connection:
                rows = await (await connection.execute("EXPLAIN " + page.sql, values)).fetchall()
            plan = "\n".join(row["QUERY PLAN"] for row in rows)
            assert "Seq Scan on task_groups" not in plan, plan
            assert "Seq Scan on group_live" not in plan, plan


@pytest.mark.spec("S000-138")
async def test_a_change_is_refused_when_somebody_else_was_quicker(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        first = await read_group(w.store, group)
        changed = await update_group(
            w.store, group, TaskGroupUpdate(priority=7, expected_updated_at=first.updated_at)
        )
        assert (changed.priority, changed.tags) == (7, [])
        with pytest.raises(Conflict):
            await update_group(
                w.store,
                group,
                TaskGroupUpdate(tags=frozenset({"x"}), expected_updated_at=first.updated_at),
            )
        assert (
            await update_group(w.store, group, TaskGroupUpdate(tags=frozenset({"x"})))
        ).tags == ["x"]
        await w.cancel(group)
        with pytest.raises(Conflict):
            await update_group(w.store, group, TaskGroupUpdate(priority=1))
        with pytest.raises(NotFound):
            await update_group(w.store, w.user_id, TaskGroupUpdate(priority=1))


async def test_only_a_settled_group_is_deleted_and_then_wholly(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3, idempotency_key="k")
        with pytest.raises(Conflict):
            await delete_group(w.store, group)
        await w.cancel(group)
        await w.control.discard(group)
        assert (await w.control.settle(group)).settled
        await delete_group(w.store, group)
        await w.delete_rows()
        rows = await w.value(
            "SELECT (SELECT count(*) FROM task) + (SELECT count(*) FROM open_task)"
            " + (SELECT count(*) FROM task_result) + (SELECT count(*) FROM submission)"
            " + (SELECT count(*) FROM group_live) + (SELECT count(*) FROM task_groups)"
        )
        assert rows == 0
        with pytest.raises(NotFound):
            await delete_group(w.store, group)


@pytest.mark.spec("S000-115", "S000-117")
async def test_progress_rate_and_estimate(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 20)
        host = await w.leased_host(group)
        info = await read_group(w.store, group)
        assert (info.tasks_completed, info.tasks_total) == (0, 20)
        assert (info.tasks_per_second, info.estimated_completion_at) == (None, None)
        tasks = (await host.claim()).tasks
        await host.report(succeeded(tasks[0]), failed(tasks[1], exit_code=1))
        await host.finish(tasks[2:5])
        info = await read_group(w.store, group)
        assert (info.tasks_completed, info.tasks_succeeded, info.tasks_failed) == (5, 4, 1)
        assert (info.tasks_per_second or 0) > 0
        assert info.estimated_completion_at is not None
        assert info.estimated_completion_at > info.created_at
        await host.finish(tasks[5:])
        assert (await read_group(w.store, group)).estimated_completion_at is None


async def test_tasks_are_listed_by_id_and_state(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        ids = (await w.submit(group, 6)).task_ids
        host = await w.leased_host(group)
        tasks = (await host.claim(4)).tasks
        await host.renew(started=tasks[:3])
        await host.report(succeeded(tasks[0], started_at=1e9, finished_at=1e9 + 2))
        page = await list_tasks(w.store, group, limit=4)
        assert [item.task_id for item in page.items] == ids[:4]
        assert [item.state.value for item in page.items] == [
            "succeeded",
            "running",
            "running",
            "ready",
        ]
        rest = await list_tasks(w.store, group, after=page.next, limit=4)
        assert ([item.task_id for item in rest.items], rest.next) == (ids[4:], None)
        first = page.items[0]
        assert (first.manager_name, first.attempt, first.spec["command"]) == (
            "host",
            1,
            ["true", "0"],
        )
        assert first.task_uuid == task_uuid(1, ids[0])
        assert first.finished_at is not None
        assert first.started_at is not None
        assert (first.finished_at - first.started_at).total_seconds() == 2

        assert [
            i.task_id for i in (await list_tasks(w.store, group, state=TaskState.READY)).items
        ] == ids[3:]
        running = await list_tasks(w.store, group, state=TaskState.RUNNING)
        assert [item.task_id for item in running.items] == ids[1:3]
        done = await list_tasks(w.store, group, state=TaskState.SUCCEEDED)
        assert [item.task_id for item in done.items] == ids[:1]
        with pytest.raises(NotFound):
            await read_task(w.store, task_uuid(1, 2**62))
        with pytest.raises(NotFound):
            await read_task(w.store, group)


COLUMNS = """
    SELECT column_name AS name, is_nullable = 'YES' AS nullable, column_default AS given,
           is_identity = 'YES' AS counted, data_type AS type
      FROM information_schema.columns WHERE table_name = 'task_group_managers'
"""
REFERENCES = """
    SELECT a.attname AS name, c.confrelid::regclass::text AS table, c.confdeltype = 'c' AS cascades
      FROM pg_constraint AS c JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = ANY(c.conkey)
     WHERE c.conrelid = 'task_group_managers'::regclass AND c.contype = 'f'
"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'task_group_managers'"


@pytest.mark.spec("S000-07", "S000-08", "S000-10", "S000-11", "S000-12")
async def test_the_table_of_managers_of_a_group(database: str) -> None:
    async with world(database) as w:
        columns = {row.pop("name"): row for row in await w.rows(COLUMNS)}
        assert {name for name, row in columns.items() if row["nullable"]} == {
            *("matched_tags", "added_by_user_id")
        }
        assert columns["id"]["counted"]
        assert {columns[name]["type"] for name in ("id", "task_group_id", "manager_id")} == {
            "bigint"
        }
        assert columns["added_at"]["type"] == "timestamp with time zone"
        assert columns["added_at"]["given"] == "now()"
        references = {
            row["name"]: (row["table"], row["cascades"]) for row in await w.rows(REFERENCES)
        }
        assert references == {
            "task_group_id": ("task_groups", True),
            "manager_id": ("managers", True),
            "added_by_user_id": ("users", False),
        }
        indexes = {row["indexname"]: row["indexdef"] for row in await w.rows(INDEXES)}
        assert indexes["idx_task_group_managers_task_group"].endswith("(task_group_id)")
        assert indexes["idx_task_group_managers_manager"].endswith("(manager_id)")
        assert any(
            "UNIQUE" in text and "(task_group_id, manager_id)" in text for text in indexes.values()
        )
        matched, named = await w.host(tags=["a"]), await w.host()
        group = await w.group(tags={"a"})
        await add_managers(w.store, group, [named.manager_id], w.user_id)
        await remove_managers(w.store, group, [matched.manager_id], w.user_id)
        rows = await w.rows(
            "SELECT m.uuid AS host, t.assignment_method AS how, u.uuid AS by, t.added_at <= now() AS past"
            " FROM task_group_managers AS t JOIN managers AS m ON m.id = t.manager_id"
            " LEFT JOIN users AS u ON u.id = t.added_by_user_id ORDER BY t.id"
        )
        assert [tuple(row.values()) for row in rows] == [
            (named.manager_id, "user_specified", w.user_id, True),
            (matched.manager_id, "removed", w.user_id, True),
        ]


async def test_waiting_says_why_nothing_happens(database: str) -> None:
    async with world(database) as w:
        group = await w.group(tags={"gpu"})

        async def why() -> str | None:
            shown = (await read_group(w.store, group)).waiting_for
            assert (await w.control.observe_task_group(group)).waiting_for == shown
            return shown

        assert await why() == "no task has been submitted yet"
        await w.submit(group, 1)
        assert await why() == "no host may serve user group alice; register one there"
        await w.host()
        assert await why() == "no host has all of the tags gpu: host lacks gpu"
        host = await w.host(tags=["gpu"], hello=False)
        assert (
            await why() == "no host that may run it is in contact: host; silence of 10 s is allowed"
        )
        await host.hello()
        assert await why() == "about to be offered to a host"
        await assign_round(w.store)
        assert await why() == "offered to host"
        await host.take(group, prepare=False)
        waits = hook("waiting", message="cannot fetch x")
        await host.environment(group, "preparing", epoch=host.epoch, hook=waits)
        assert await why() == "host waits for infrastructure: cannot fetch x"
        await host.environment(group, "preparing", epoch=host.epoch, hook=hook("running"))
        assert await why() == "setup on host"
        await host.environment(group, "prepared", epoch=host.epoch, hook=hook("succeeded"))
        assert await why() is None
        await host.finish((await host.claim()).tasks)
        assert await why() == "all tasks have ended; waiting for more tasks or for close"
        await w.pokes()  # else the oldest says for how long Temporal has not been reached
        await w.close(group)
        assert await why() == "all tasks have ended; being completed"
        await w.control.finalize(group)
        assert await why() == "cleanup on host"
