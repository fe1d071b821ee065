"""How task groups are shown."""

from datetime import timedelta
from typing import Any

import pytest

from mitosis.cli.group.view import (
    counts_text,
    group_item,
    groups_table,
    state_text,
)
from mitosis.contracts.http import TaskGroupInfo
from tests.support.infos import ID, LEASE, NOON, group


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
    assert shown["workers"] == "2 per host, exclusive on cores 0,1"
    assert "labels" not in shown


def test_json_of_a_group_is_what_the_api_says() -> None:
    data = group_item(group()).data
    assert TaskGroupInfo.model_validate(data) == group()
    table = groups_table([group()])
    assert table.data == [data]
    assert table.ids == [str(ID)]
    assert table.rows[0][:4] == ("ann/squares", "open", "5/8", "1")
