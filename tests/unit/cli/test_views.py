"""How groups, tasks and managers look to people; what `wait` makes of a group."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.cli.explain import explanation_item
from mitosis.cli.group.view import (
    counts_text,
    group_item,
    groups_table,
    state_text,
)
from mitosis.cli.group.wait import ended, progress_text, verdict
from mitosis.cli.manager.view import manager_item, managers_table
from mitosis.cli.task.view import ending_text, output_text, task_item, tasks_table, what_text
from mitosis.contracts.explain import Explanation, HostReason
from mitosis.contracts.http import LeaseInfo, ManagerInfo, TaskGroupInfo, TaskInfo
from mitosis.contracts.lifecycle import EnvironmentState, LeaseState, ManagerState

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
ID = UUID(int=7)

LEASE = LeaseInfo(
    epoch=9,
    state=LeaseState.ACTIVE,
    task_group_id=ID,
    task_group_name="squares",
    manager_id=ID,
    manager_name="host-1",
    offered_at=NOON,
)


def group(**changes: Any) -> TaskGroupInfo:
    values: dict[str, Any] = {
        "task_group_id": ID,
        "name": "squares",
        "group_name": "ann",
        "state": "open",
        "settled": False,
        "tags": ["gpu"],
        "labels": [],
        "priority": 0,
        "worker_allocation_plan": {
            "worker_count": 2,
            "cpu_binding": {"strategy": "exclusive", "cores": [0, 1]},
        },
        "tasks_total": 8,
        "tasks_unfinished": 3,
        "tasks_completed": 5,
        "tasks_succeeded": 4,
        "tasks_failed": 1,
        "tasks_cancelled": 0,
        "created_at": NOON,
        "updated_at": NOON,
        "workflow_id": f"task-group/{ID}",
    }
    return TaskGroupInfo.model_validate({**values, **changes})


def task(**changes: Any) -> TaskInfo:
    values: dict[str, Any] = {
        "task_id": 17,
        "task_uuid": ID,
        "task_group_id": ID,
        "state": "failed",
        "attempt": 2,
        "spec": {"command": ["sh", "-c", "exit 3"]},
        "kind": "exit_code",
        "exit_code": 3,
        "manager_name": "host-1",
        "created_at": NOON,
        "started_at": NOON,
        "finished_at": NOON + timedelta(seconds=1.5),
        "detail": {
            "stderr": "no\x1b[2J\n",
            "stdout": "first\nlast\n",
            "stdout_bytes": 5000,
            "usage": {"user_seconds": 0.25, "max_rss_bytes": 5_000_000},
            "worker": 1,
            "cpus": [2, 3],
        },
        "failures": [
            {"attempt": 1, "kind": "signal", "signal": 9, "failed_at": NOON},
        ],
    }
    return TaskInfo.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "open"),
        ({"state": "complete"}, "complete, cleaning up"),
        ({"state": "cancelled", "counting": True}, "cancelled, counting tasks"),
        ({"state": "complete", "settled": True, "result": "success"}, "complete, settled: success"),
    ],
)
def test_the_state_says_how_far_an_ending_is(changes: dict[str, Any], text: str) -> None:
    assert state_text(group(**changes)) == text


def test_counts_name_only_what_there_is() -> None:
    assert counts_text(group()) == "5 of 8 completed (4 succeeded, 1 failed)"
    assert counts_text(group(tasks_running=2)).endswith(", 2 running")
    fresh = {"tasks_completed": 0, "tasks_succeeded": 0, "tasks_failed": 0}
    assert counts_text(group(**fresh)) == "0 of 8 completed"


def test_a_group_shows_its_host_its_hooks_and_why_it_waits() -> None:
    hook = {
        "kind": "setup",
        "state": "failed",
        "manager_name": "host-1",
        "message": "exit code 1",
        "stderr_tail": "disk full",
        "started_at": NOON,
        "finished_at": NOON + timedelta(seconds=2),
    }
    shown = dict(group_item(group(hook_runs=[hook], leases=[LEASE], waiting_for="a host")).fields)
    assert shown["setup"] == "failed on host-1 in 2s: exit code 1\ndisk full"
    assert shown["host"] == "host-1: lease active"
    assert shown["waits for"] == "a host"
    assert shown["workers"] == "2 a host, exclusive on cores 0,1"
    assert "labels" not in shown


def test_json_of_a_group_is_what_the_api_says() -> None:
    data = group_item(group()).data
    assert TaskGroupInfo.model_validate(data) == group()
    table = groups_table([group()])
    assert table.data == [data]
    assert table.ids == [str(ID)]
    assert table.rows[0][:4] == ("ann/squares", "open", "5/8", "1")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "exit 3"),
        ({"kind": None, "exit_code": 0}, "exit 0"),
        ({"kind": "signal", "exit_code": None, "signal": 9}, "SIGKILL"),
        ({"kind": "out_of_memory", "exit_code": None, "signal": 9}, "SIGKILL (out_of_memory)"),
        ({"kind": "timeout", "exit_code": None, "signal": 15}, "SIGTERM (timeout)"),
        ({"kind": "not_started", "exit_code": None}, "not_started"),
        ({"kind": None, "exit_code": None, "state": "ready"}, ""),
    ],
)
def test_an_ending_in_a_word_or_two(changes: dict[str, Any], text: str) -> None:
    assert ending_text(task(**changes)) == text


def test_what_a_task_runs_reads_as_a_shell_would_read_it() -> None:
    assert what_text(task()) == "sh -c 'exit 3'"
    long = task(spec={"command": ["echo", "x" * 100]})
    assert tasks_table([long]).rows[0][6] == "echo " + "x" * 42 + "…"
    called = task(spec={"handler": "m:f", "arguments": {"x": 1}})
    assert what_text(called) == 'm:f({"x": 1})'


def test_output_that_is_no_utf8_is_measured_by_its_bytes() -> None:
    detail = {"stdout": "\ufffd end", "stdout_base64": "/yBlbmQ=", "stdout_bytes": 6}
    assert "stdout (the end of 6 bytes)" in dict(task_item(task(detail=detail)).fields)


def test_a_task_shows_output_usage_and_earlier_failures() -> None:
    item = task_item(task())
    shown = dict(item.fields)
    assert shown["time"] == "1.5s"
    assert shown["stderr"] == "no\x1b[2J"
    assert shown["used"] == "0.250 s user, 0.000 s system, 5.0 MB at most"
    assert shown["worker"] == "1, on cores 2, 3"
    assert shown["stdout (the end of 5,000 bytes)"] == "first\nlast"
    assert shown["earlier failure"].endswith("signal, SIGKILL")
    assert tasks_table([task()]).data == [item.data]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "no\x1b[2J"),
        ({"state": "succeeded"}, "last"),
        ({"detail": {"result": {"area": 4}, "stdout": "noise"}}, '{"area": 4}'),
        ({"detail": {"message": "command not found: x"}}, "command not found: x"),
        ({"detail": None}, ""),
    ],
)
def test_the_table_shows_the_line_that_tells_most(changes: dict[str, Any], text: str) -> None:
    assert output_text(task(**changes)) == text


def test_managers_show_what_they_work_for() -> None:
    one = ManagerInfo(
        manager_id=ID,
        name="host-1",
        state=ManagerState.EXECUTING,
        tags=["gpu"],
        labels=[],
        groups=["ann:write"],
        cores=[0, 1],
        lease=LEASE,
        environments={"squares": EnvironmentState.READY},
        created_at=NOON,
    )
    assert managers_table([one]).rows[0][:5] == ("host-1", "executing", "squares", "2", "gpu")
    shown = dict(manager_item(one).fields)
    assert shown["lease"] == "squares, active, epoch 9"
    assert shown["environment"] == "squares: ready"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"result": "success", "state": "complete", "settled": True}, ExitStatus.OK),
        ({"result": "tasks_failed"}, ExitStatus.TASKS_FAILED),
        ({"result": "setup_failed"}, ExitStatus.SETUP_FAILED),
        ({"result": "teardown_degraded"}, ExitStatus.TEARDOWN_DEGRADED),
        ({"result": "cancelled"}, ExitStatus.CANCELLED),
        ({"state": "cancelled"}, ExitStatus.CANCELLED),
        ({"state": "complete"}, ExitStatus.TASKS_FAILED),
        ({"state": "complete", "tasks_failed": 0}, ExitStatus.OK),
    ],
)
def test_the_exit_status_of_wait_is_the_result(changes: dict[str, Any], status: ExitStatus) -> None:
    assert verdict(group(**changes)) is status


def test_complete_comes_before_settled() -> None:
    complete = group(state="complete")
    assert ended(complete, "complete")
    assert not ended(complete, "settled")
    assert not ended(group(state="closed"), "complete")
    assert ended(group(state="cancelled", settled=True), "settled")


def test_progress_is_one_line() -> None:
    text = progress_text(
        group(
            tasks_per_second=123.456,
            estimated_completion_at=NOON + timedelta(seconds=75),
            waiting_for="nothing",
        ),
        NOON.timestamp(),
    )
    assert text == (
        "squares: open, 5 of 8 completed (4 succeeded, 1 failed), 123/s, about 1m15s left, nothing"
    )


def test_hosts_of_one_name_are_told_apart_by_their_ids() -> None:
    hosts = [
        HostReason(manager_id=UUID(int=number), manager_name=name, code="busy", line="is busy")
        for number, name in ((1, "vm"), (2, "big"), (3, "vm"))
    ]
    item = explanation_item(
        Explanation(
            task_group_id=ID,
            task_group_name="squares",
            state="open",
            waits=True,
            code="busy",
            line="all are busy",
            hosts=tuple(hosts),
        )
    )
    assert [text for label, text in item.fields if label == "host"] == [
        f"vm ({UUID(int=1)}): is busy",
        "big: is busy",
        f"vm ({UUID(int=3)}): is busy",
    ]
