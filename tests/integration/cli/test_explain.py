"""`explain` end to end: the same line in the API, in `explain`, in `show`, of groups and of tasks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis.contracts.wire import Outcome
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.program import mitosis, mitosis_json, refused
from tests.support.servers import LoopThread

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def stack(database: str, tmp_path: Path) -> Iterator[CliStack]:
    with LoopThread() as loop, cli_stack(loop, database, tmp_path / "data") as running:
        yield running


def test_the_line_is_the_same_everywhere_and_follows_what_happens(stack: CliStack) -> None:
    def ask(*words: str) -> dict[str, object]:
        found: dict[str, object] = mitosis_json(stack.data_dir, *words)
        return found

    ask("group", "create", "work", "--tag", "gpu")
    empty = ask("explain", "work")
    assert (empty["code"], empty["waits"], empty["hosts"]) == ("empty", True, [])
    ids = ask("group", "submit", "work", "--", "true")["task_ids"]
    assert isinstance(ids, list)
    ask("manager", "register", "host-0", "--tag", "big")
    tags = ask("explain", "work")
    assert (tags["code"], tags["line"]) == (
        "tags",
        "no host has all of the tags gpu: host-0 lacks gpu",
    )
    assert tags["line"] == ask("group", "show", "work")["waiting_for"]
    of_task = ask("explain", f"work/{ids[0]}")
    assert (of_task["code"], of_task["line"], of_task["task_id"]) == ("tags", tags["line"], ids[0])
    assert [host["manager_name"] for host in of_task["hosts"]] == ["host-0"]  # type: ignore[attr-defined]


def test_a_host_is_explained_and_shows_what_its_switches_cost(stack: CliStack) -> None:
    mitosis_json(stack.data_dir, "group", "create", "work")
    mitosis_json(stack.data_dir, "group", "submit", "work", "--", "true")
    mitosis_json(stack.data_dir, "manager", "register", "host-0")
    silent = mitosis_json(stack.data_dir, "manager", "explain", "host-0")
    assert (silent["code"], silent["waits"]) == ("no_contact", True)
    assert silent["line"] == "host-0 has never been in contact; silence of 10 s is allowed"
    assert silent["change"] == "bring host-0 back into contact"
    (group,) = silent["groups"]
    assert (group["task_group_name"], group["code"]) == ("work", "no_contact")
    environment = stack.environment()
    text = mitosis("manager", "explain", "host-0", env=environment)
    assert re.search(rf"task group +work: {re.escape(group['line'])}", text)
    past = ("manager", "explain", "host-0", "--at", "2020-01-01 00:00")
    assert "is kept: none" in refused(*past, env=environment)
    assert "no host is called 'host-7'" in refused("manager", "explain", "host-7", env=environment)
    (host, total) = mitosis_json(stack.data_dir, "manager", "switching")
    assert (host["host"], host["lost_seconds"], total["manager_id"]) == ("host-0", 0.0, None)


def test_what_temporal_has_not_heard_is_said(stack: CliStack) -> None:
    mitosis_json(stack.data_dir, "group", "create", "work")
    mitosis_json(stack.data_dir, "group", "submit", "work", "--", "true")
    stack.run_tasks([Outcome.FAILED])
    mitosis_json(stack.data_dir, "group", "close", "work")

    async def age() -> None:
        async with stack.app_state.store.database.connection() as connection:
            await connection.execute("UPDATE outbox SET created_at = now() - interval '42 seconds'")

    stack.loop.run(age())
    said = mitosis_json(stack.data_dir, "explain", "work")
    assert said["code"] == "infrastructure"
    silent = re.fullmatch(
        r"waiting for infrastructure: Temporal has not been reached for (\d+) s", said["line"]
    )
    assert silent, said
    assert 42 <= int(silent[1]) < 120
    task = mitosis_json(stack.data_dir, "group", "tasks", "work")[0]
    ended = mitosis_json(stack.data_dir, "explain", f"work/{task['task_id']}")
    assert (ended["code"], ended["waits"]) == ("finished", False)
    assert ended["line"] == "it has failed on host-1, attempt 1, exit code"
