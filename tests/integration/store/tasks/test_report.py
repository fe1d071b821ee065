"""Reports: the attempt is the fence, every failure is charged once, the rest is said per task (P2, P3)."""

import json
import logging
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from psycopg import AsyncCursor

from mitosis.client.outcome import ResultUnreadable, TaskFailed, result_of
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import TooLarge
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask, LeaseStanding, Outcome, ReportStatus, TaskReport
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.tasks.results import wait_for_results
from mitosis.store.tasks.views import list_tasks, read_task
from tests.support.campaigns import Host, World, failed, succeeded, world
from tests.support.odd_values import nested

COMMITTED, DUPLICATE = ReportStatus.COMMITTED, ReportStatus.DUPLICATE
SUPERSEDED, UNKNOWN = ReportStatus.SUPERSEDED, ReportStatus.UNKNOWN


async def one_task(w: World, **retry: object) -> tuple[Host, ClaimedTask]:
    group = await w.group()
    policy = RetryPolicy(**retry)  # type: ignore[arg-type]
    await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=policy)])
    host = await w.leased_host(group)
    (task,) = (await host.claim()).tasks
    return host, task


async def goodbye(host: Host) -> None:
    await say_goodbye(host.world.store, host.manager_id, host.epoch)


@pytest.mark.spec("S000-141", "S000-142")
async def test_a_report_counts_once(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w)
        answer = await host.report(succeeded(task), succeeded(task))
        assert answer.statuses == [COMMITTED, DUPLICATE]
        assert (await host.report(succeeded(task))).statuses == [DUPLICATE]
        assert (await host.report(failed(task))).statuses == [DUPLICATE]
        assert await w.value("SELECT succeeded FROM group_live") == 1
        await w.check()


async def test_a_late_report_counts_while_nobody_has_claimed_the_task_again(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w)
        await goodbye(host)
        answer = await host.report(succeeded(task))
        assert (answer.standing, answer.statuses) == (LeaseStanding.GONE, [COMMITTED])
        await w.check()


async def test_a_zombie_is_superseded(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w)
        group = await w.value("SELECT uuid FROM task_groups")
        await goodbye(host)
        other = await w.leased_host(group)
        (again,) = (await other.claim()).tasks
        assert (again.task_id, again.attempt) == (task.task_id, 2)
        assert (await host.report(succeeded(task))).statuses == [SUPERSEDED]
        assert (await other.report(failed(again, exit_code=7))).statuses == [COMMITTED]
        assert (await host.report(succeeded(task))).statuses == [SUPERSEDED]
        info = await read_task(w.store, task_uuid(1, task.task_id))
        assert (info.state, info.exit_code, info.attempt) == ("failed", 7, 2)
        await w.check()


async def test_reports_of_nothing_are_unknown(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w)
        nothing = TaskReport(task_id=2**62, attempt=1, outcome=Outcome.SUCCEEDED)
        answer = await host.report(nothing, succeeded(task))
        assert answer.statuses == [UNKNOWN, COMMITTED]
        stranger = await w.host()
        stranger.epoch = host.epoch
        answer = await stranger.report(succeeded(task))
        assert (answer.standing, answer.statuses) == (LeaseStanding.GONE, [UNKNOWN])
        assert (await host.report()).statuses == []
        with pytest.raises(TooLarge):
            await host.report(*([nothing] * 5001))


async def test_a_report_does_not_reach_into_another_group(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w)
        other = await w.group("other")
        await w.submit(other, 1)
        stranger = await w.leased_host(other)
        assert (await stranger.report(succeeded(task))).statuses == [UNKNOWN]
        assert (await host.report(succeeded(task))).statuses == [COMMITTED]


@pytest.mark.spec("S000-73", "S000-145", "S000-88")
async def test_a_retried_failure_is_charged_once_and_kept(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w, max_attempts=2)
        first = failed(task, exit_code=3, detail=Raw(b'{"stderr":"no"}'))
        assert (await host.report(first)).statuses == [COMMITTED]
        assert (await host.report(first)).statuses == [DUPLICATE], "its answer was lost"
        assert await w.value("SELECT exit_failures FROM open_task") == 1
        (again,) = (await host.claim()).tasks
        assert again.attempt == 2
        assert (await host.report(first)).statuses == [DUPLICATE]
        both = await host.report(first, failed(again, exit_code=4))
        assert both.statuses == [DUPLICATE, COMMITTED]
        info = await read_task(w.store, task_uuid(1, task.task_id))
        assert (info.state, info.exit_code, info.kind) == ("failed", 4, "exit_code")
        assert [(f.attempt, f.exit_code, f.detail) for f in info.failures] == [
            (1, 3, {"stderr": "no"})
        ]
        await w.check()


@pytest.mark.spec("S000-73")
async def test_lists_and_results_tell_of_failed_attempts_too(database: str) -> None:
    """All but what they wrote, which may be much."""
    async with world(database) as w:
        group = await w.group()
        retry = RetryPolicy(max_attempts=3)
        await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=retry)] * 3)
        host = await w.leased_host(group)
        smooth, bumpy, open_still = (await host.claim()).tasks
        detail = Raw(b'{"stderr":"no"}')
        await host.report(
            succeeded(smooth),
            failed(bumpy, exit_code=3, detail=detail),
            failed(open_still, exit_code=5, detail=detail),
        )
        again = {task.task_id: task for task in (await host.claim()).tasks}
        await host.report(succeeded(again[bumpy.task_id]))
        told = {
            smooth.task_id: [],
            bumpy.task_id: [(1, "exit_code", 3, None)],
            open_still.task_id: [(1, "exit_code", 5, None)],
        }
        listed = (await list_tasks(w.store, group)).items
        results = (await wait_for_results(w.store, group)).items
        for tasks, expected in ((listed, told), (results, dict(list(told.items())[:2]))):
            assert {
                task.task_id: [(f.attempt, f.kind, f.exit_code, f.detail) for f in task.failures]
                for task in tasks
            } == expected


@pytest.mark.parametrize(
    ("retry", "kind", "exit_code", "again"),
    [
        ({}, "exit_code", 1, False),
        ({"max_attempts": 2}, "exit_code", 1, True),
        ({"max_attempts": 2}, "timeout", None, True),
        ({"max_attempts": 2}, "handler_error", None, True),
        ({"max_attempts": 2}, "not_started", None, True),
        ({"max_attempts": 2, "exit_codes": (75,)}, "exit_code", 75, True),
        ({"max_attempts": 2, "exit_codes": (75,)}, "exit_code", 1, False),
        ({"max_attempts": 2, "exit_codes": (75,)}, "exit_code", None, False),
        ({"max_attempts": 2, "exit_codes": ()}, "exit_code", 1, False),
        ({"max_attempts": 2, "exit_codes": (75,)}, "timeout", None, True),
        ({"max_attempts": 2, "exit_codes": ()}, "stuck", None, True),
        ({"max_attempts": 1, "exit_codes": (75,)}, "stuck", None, False),
        ({"max_attempts": 2, "exit_codes": (75,)}, "handler_error", None, False),
        ({"max_attempts": 2}, "something new", 1, True),
        ({"max_attempts": 9}, "result_refused", None, False),
        ({"max_attempts": 9}, "result_refused", 0, False),
    ],
)
@pytest.mark.spec("S000-58", "C-18")
async def test_the_retry_policy_decides_failures_of_the_task_itself(
    database: str, retry: dict[str, object], kind: str, exit_code: int | None, *, again: bool
) -> None:
    async with world(database) as w:
        host, task = await one_task(w, **retry)
        assert (await host.report(failed(task, kind, exit_code=exit_code))).statuses == [COMMITTED]
        assert await w.value("SELECT count(*) FROM open_task") == int(again)
        assert await w.value("SELECT count(*) FROM task_failures") == int(again)
        await w.check()


@pytest.mark.parametrize(
    ("kind", "signal", "limit"),
    [
        ("signal", 11, 2),
        ("signal", 4, 2),
        ("signal", 7, 2),
        ("signal", 8, 2),
        ("signal", 9, 3),
        ("signal", 6, 3),
        ("signal", 40, 3),
        ("out_of_memory", 9, 3),
        ("worker_lost", None, 3),
        ("worker_lost", 11, 2),
        ("worker_lost", 9, 3),
    ],
)
@pytest.mark.spec("S000-60", "S000-61", "S000-64", "C-18", "S000-45", "C-19")
async def test_the_signal_table_decides_crashes(
    database: str, kind: str, signal: int | None, limit: int
) -> None:
    async with world(database) as w:
        host, task = await one_task(w, max_attempts=1)
        for number in range(1, limit + 1):
            assert task.attempt == number
            assert (await host.report(failed(task, kind, signal=signal))).statuses == [COMMITTED]
            left = await w.value("SELECT count(*) FROM open_task")
            assert left == (0 if number == limit else 1)
            if left:
                (task,) = (await host.claim(wait=5)).tasks
        assert await w.value("SELECT count(*) FROM task_failures") == limit
        await w.check()


@pytest.mark.parametrize("exit_code", [0, 1, 255])
@pytest.mark.spec("S000-62", "C-18", "C-19")
async def test_a_worker_that_exits_under_its_task_is_a_crash_and_the_third_is_the_last(
    database: str, exit_code: int
) -> None:
    async with world(database) as w:
        host, task = await one_task(w, max_attempts=1)
        for left in (1, 1, 0):
            await host.report(failed(task, "worker_lost", exit_code=exit_code))
            assert await w.value("SELECT count(*) FROM open_task") == left
            if left:
                (task,) = (await host.claim(wait=5)).tasks
        info = await read_task(w.store, task_uuid(1, task.task_id))
        assert (info.state, info.kind, len(info.failures)) == ("failed", "worker_lost", 3)


@pytest.mark.spec("S000-68", "S000-69", "S000-46")
async def test_every_crash_is_logged_and_the_last_says_how_often(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mitosis.store.tasks.report")
    detail = Raw(b'{"worker":1,"message":"killed by \\"SIGSEGV\\"","stderr":"\\u0000"}')
    message = 'killed by "SIGSEGV"'
    async with world(database) as w:
        host, task = await one_task(w)
        await host.report(failed(task, "worker_lost", signal=11, detail=detail))
        (again,) = (await host.claim()).tasks
        assert again.task_id == task.task_id, "it has stayed in the queue"
        await host.report(failed(again, "worker_lost", signal=11, detail=detail))
        info = await read_task(w.store, task_uuid(1, task.task_id))
        said = {"message": f"Worker failed 2 times: {message}", "worker": 1, "stderr": "\0"}
        assert (info.state, info.detail) == ("failed", said)
        assert [(f.detail or {})["message"] for f in info.failures] == [message] * 2
        who = (task.task_id, f"{host.manager_id}:1", message)
        records = [vars(record) for record in caplog.records if hasattr(record, "failure_count")]
        names = ("levelname", "task_id", "worker_id", "reason", "failure_count")
        assert [tuple(record[name] for name in names) for record in records] == [
            ("INFO", *who, 1),
            ("WARNING", *who, 2),
        ]


@pytest.mark.spec("C-18")
async def test_the_two_counters_are_kept_apart(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w, max_attempts=2)
        await host.report(failed(task, "signal", signal=11))
        (task,) = (await host.claim()).tasks
        await host.report(failed(task, "exit_code", exit_code=1))
        row = (await w.rows("SELECT exit_failures, crash_failures FROM open_task"))[0]
        assert row == {"exit_failures": 1, "crash_failures": 1}


@pytest.mark.spec("C-17", "S000-114")
async def test_an_end_changes_the_counters_a_start_does_not_and_no_trigger_does(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 4)
        host = await w.leased_host(group)
        tasks = (await host.claim(3)).tasks
        await host.renew(started=tasks)

        async def unfinished() -> int:
            await w.check()
            return (await w.control.observe_task_group(group)).unfinished

        assert await unfinished() == 4, "running is not finished"
        await host.report(succeeded(tasks[0]))
        assert await unfinished() == 3
        await host.report(failed(tasks[1], exit_code=1))
        assert await unfinished() == 2
        await w.cancel(group)
        await w.control.discard(group)
        assert await unfinished() == 1
        cancelled = TaskReport(
            task_id=tasks[2].task_id, attempt=tasks[2].attempt, outcome=Outcome.CANCELLED
        )
        await host.report(cancelled)
        assert await unfinished() == 0
        on = await w.rows(
            "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal"
            " AND tgname NOT IN ('open_task_parent_ended', 'open_task_of_step_ended')"  # count nothing
        )
        assert not [
            row for row in on if "task" in row["tgrelid"] and row["tgrelid"] != "task_groups"
        ]
        functions = await w.rows(
            "SELECT p.prosrc FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid"
            " WHERE NOT t.tgisinternal"
            " AND t.tgname NOT IN ('open_task_parent_ended', 'open_task_of_step_ended')"
            " AND t.tgrelid <> 'schedules'::regclass"  # counts none either
        )
        assert not [row for row in functions if "UPDATE" in row["prosrc"]]


@pytest.mark.spec("S000-113")
async def test_many_tasks_change_state_in_as_many_statements_as_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    execute = AsyncCursor.execute

    async def noted(self: AsyncCursor[Any], query: Any, *rest: Any, **more: Any) -> Any:
        asked.append(query)
        return await execute(self, query, *rest, **more)

    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 301)
        host = await w.leased_host(group)
        monkeypatch.setattr(AsyncCursor, "execute", noted)

        async def statements(deed: Awaitable[Any]) -> tuple[Any, int]:
            asked.clear()
            return await deed, len(asked)

        one, for_one = await statements(host.claim(1))
        many, for_many = await statements(host.claim(300))
        assert (len(one.tasks), len(many.tasks)) == (1, 300)
        assert for_many == for_one > 0
        _, for_one = await statements(host.finish(one.tasks))
        _, for_many = await statements(host.finish(many.tasks))
        assert for_many == for_one > 0
        assert (await w.control.observe_task_group(group)).succeeded == 301


async def test_delays_double_and_crashes_have_none(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w, max_attempts=10, delay_seconds=100)
        delay = "SELECT extract(epoch FROM not_before - now())::float8 FROM open_task"
        await host.report(failed(task, exit_code=1))
        assert 90 < await w.value(delay) <= 100
        for expected in (200, 400):
            await w.rows("UPDATE open_task SET not_before = now()")
            (task,) = (await host.claim()).tasks
            await host.report(failed(task, exit_code=1))
            assert expected - 10 < await w.value(delay) <= expected
        await w.rows("UPDATE open_task SET not_before = now()")
        (task,) = (await host.claim()).tasks
        await host.report(failed(task, "signal", signal=9))
        assert await w.value("SELECT state FROM open_task") == 0


async def test_nothing_is_tried_again_in_a_group_that_was_cancelled(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w, max_attempts=5)
        group = await w.value("SELECT uuid FROM task_groups")
        await w.cancel(group)
        answer = await host.report(failed(task, exit_code=1))
        assert (answer.standing, answer.statuses) == (LeaseStanding.ENDING, [COMMITTED])
        assert (await w.control.observe_task_group(group)).unfinished == 0
        await w.check()


@pytest.mark.parametrize(
    "detail",
    [b"{", b'"text"', b'{"a":"\xff"}', b"[" * 100_000, b'{"a":"\\ud800"}', b'{"a":\x001}', b""],
)
async def test_a_bad_detail_harms_nobody_else(database: str, detail: bytes) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        good, bad = (await host.claim()).tasks
        answer = await host.report(
            succeeded(good, detail=Raw(b'{"stdout":"\\u0000fine"}')),
            succeeded(bad, detail=Raw(detail)),
        )
        assert answer.statuses == [COMMITTED, COMMITTED]
        page = await list_tasks(w.store, group)
        assert page.items[0].detail == {"stdout": "\0fine"}
        assert "message" in (page.items[1].detail or {})


async def test_a_kind_with_a_nul_byte_is_recorded_as_a_failure(database: str) -> None:
    async with world(database) as w:
        host, task = await one_task(w)
        assert (await host.report(failed(task, "a\0b"))).statuses == [COMMITTED]


@pytest.mark.spec("S002-141")
async def test_a_lost_host_is_charged_for_started_tasks_only(database: str) -> None:
    """Twice lost: runs alone. Three times: it ends as poison. Never started: nothing is charged."""
    async with world(database) as w:
        group = await w.group()
        started, waiting = (await w.submit(group, 2)).task_ids
        lost = w.user_id
        for loss in (1, 2, 3):
            host = await w.leased_host(group)
            lost = host.manager_id
            claimed = {task.task_id: task for task in (await host.claim()).tasks}
            assert claimed[started].alone == (loss == 3)
            assert not claimed[waiting].alone
            await host.renew(started=[claimed[started]])
            request = ReleaseRequest(
                manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
            )
            alive = await release_lease(w.store, request)
            assert (alive.status, alive.requeued) == ("alive", 0)
            assert 80 < (alive.alive_in_seconds or 0) <= 90
            await w.rows("UPDATE leases SET alive_until = now() WHERE state = 'active'")
            released = await release_lease(w.store, request)
            assert (released.status, released.requeued) == ("released", 2 if loss < 3 else 1)
        info = await read_task(w.store, task_uuid(1, started))
        assert (info.state, info.kind, len(info.failures)) == ("failed", "host_lost", 3)
        row = (await w.rows("SELECT lost_count, exit_failures, crash_failures FROM open_task"))[0]
        assert set(row.values()) == {0}
        view = await observe_manager(w.store, lost)
        assert (view.online, view.lease, view.environments[0].state) == (False, None, "owed")
        assert (await w.control.observe_task_group(group)).unfinished == 1
        await w.check()


@pytest.mark.parametrize("door", ["reported", "stored"])
async def test_a_value_that_no_reader_takes_hides_no_other_task(database: str, door: str) -> None:
    """PostgreSQL takes JSON that pydantic cannot write; the row is shown without that member."""
    bad = json.dumps({"result": nested("[{", 300), "stdout": "kept"})
    async with world(database) as w:
        group = await w.group()
        await w.submit_tasks(group, [TaskSubmission(command=["x"])] * 3)
        host = await w.leased_host(group)
        tasks = (await host.claim(3)).tasks
        reports = [succeeded(task) for task in tasks]
        if door == "reported":
            reports[1] = msgspec.structs.replace(reports[1], detail=Raw(bad.encode()))
        assert (await host.report(*reports)).statuses == [COMMITTED] * 3
        if door == "stored":
            change = f"SET detail = '{bad}' WHERE task_id = {tasks[1].task_id}"
            await w.value(f"UPDATE task_result {change} RETURNING 1")
        page = await wait_for_results(w.store, group)
        assert page.model_dump_json()
        assert (await list_tasks(w.store, group)).model_dump_json()
        assert len(page.items) == 3
        shown = {task.task_id: task for task in page.items}[tasks[1].task_id]
        number = await w.value("SELECT id FROM task_groups")
        alone = await read_task(w.store, task_uuid(number, tasks[1].task_id))
        for task in (shown, alone):
            assert task.detail is not None
            assert "result" not in task.detail
            assert task.detail["stdout"] == "kept"
            assert (task.kind == "result_not_storable") == (door == "reported")
            assert ("unreadable" in task.detail) == (door == "stored")
        if door == "stored":
            with pytest.raises(ResultUnreadable, match=f"task_id = {tasks[1].task_id}"):
                result_of(shown)
        else:
            with pytest.raises(TaskFailed, match="cannot be stored: result is nested deeper"):
                result_of(shown)
        await w.check()
