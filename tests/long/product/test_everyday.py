"""The commands beside `mitosis run` that people use every day, on one real stack: retry, watch, logs."""

import base64
import json
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.program import (
    MITOSIS,
    mitosis,
    mitosis_json,
    prepared_mitosis,
    refused,
)
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
POLL = 0.2
"""Seconds between two programs that ask for the same."""


@pytest.fixture
def ask(stack: Path) -> Any:
    """``ask("group", "show", NAME)``: one command with ``--json``; what it said."""
    return lambda *words: mitosis_json(stack, *words)


def submit(ask: Any, folder: Path, group: str, *tasks: dict[str, Any]) -> list[int]:
    file = folder / "tasks.json"
    file.write_text(json.dumps(tasks))
    return list(ask("group", "submit", group, "--json-file", str(file))["task_ids"])


def needs(path: Path) -> dict[str, Any]:
    """A task that fails until ``path`` is there."""
    return {"command": ["test", "-e", str(path)]}


def completed(ask: Any, group: str, count: int) -> None:
    """Wait until so many tasks have ended."""
    wait_until(lambda: ask("group", "show", group)["tasks_completed"] >= count, 60, interval=POLL)


# --- retry ------------------------------------------------------------------------------------------


def test_an_open_group_gets_its_failed_tasks_again_and_each_only_once(
    ask: Any, env: Mapping[str, str], tmp_path: Path
) -> None:
    ask("group", "create", "opened", "--workers", "2")
    gate = os.fsencode(tmp_path) + b"/g\xff te"
    words = ["dGVzdA==", "LWU=", base64.b64encode(gate).decode()]
    odd = {"command": words, "command_encoding": "base64", "labels": ["mine"], "priority": 3}
    ids = submit(ask, tmp_path, "opened", odd, {"command": ["true"]}, needs(tmp_path / "b"))
    completed(ask, "opened", 3)
    Path(os.fsdecode(gate)).touch()
    said = ask("retry", "opened")
    assert (said["name"], said["new_group"], said["retry_of"]) == ("opened", False, ids[::2])
    completed(ask, "opened", 5)
    tasks = {task["task_id"]: task for task in ask("group", "tasks", "opened")}
    states = [tasks[number]["state"] for number in said["task_ids"]]
    assert states == ["succeeded", "failed"]
    spec = tasks[said["task_ids"][0]]["spec"]
    assert spec == {**odd, "labels": ["mine", f"retry-of:{ids[0]}"]}
    assert ask("retry", "opened")["retry_of"] == [said["task_ids"][1]]  # not the first one again
    completed(ask, "opened", 6)
    (tmp_path / "b").touch()
    assert len(ask("retry", "opened")["task_ids"]) == 1
    completed(ask, "opened", 7)
    assert "nothing to retry" in mitosis("retry", "opened", env=env)
    ask("group", "close", "opened")


def test_a_group_that_has_ended_is_made_again_under_a_free_name(
    ask: Any, stack: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    hook = ["--setup", f"touch {told}", "--teardown", f"rm {told}"]
    more = ["--priority", "4", "--label", "l1", "--workers", "2", "--pin", "round-robin"]
    ask("group", "create", "over", *hook, *more, "--cancel-grace", "7s", "--tag-match", "any")
    submit(ask, tmp_path, "over", needs(tmp_path / "a"), needs(tmp_path / "b"), needs(told))
    ask("group", "close", "over")
    wait_until(lambda: ask("group", "show", "over")["settled"], 60, interval=POLL)
    said = ask("retry", "over")
    assert (said["name"], said["new_group"], len(said["task_ids"])) == ("over-retry-1", True, 2)
    assert ask("retry", "over") == {"task_ids": [], "retry_of": []}
    wait_until(lambda: ask("group", "show", "over-retry-1")["settled"], 60, interval=POLL)
    old, new = ask("group", "show", "over"), ask("group", "show", "over-retry-1")
    same = ("worker_allocation_plan", "environment_setup_hook", "environment_teardown_hook")
    for field in (*same, "priority", "labels", "tags", "tag_match", "cancel_grace_seconds"):
        assert new[field] == old[field], field
    assert (new["result"], new["tasks_failed"]) == ("tasks_failed", 2)
    assert new["cancel_grace_seconds"] == 7
    (tmp_path / "a").touch()
    assert ask("retry", "over-retry-1", "--name", "third")["name"] == "third"
    wait_until(lambda: ask("group", "show", "third")["settled"], 60, interval=POLL)
    assert ask("group", "show", "third")["tasks_succeeded"] == 1
    assert "called over" in refused("retry", "--data-dir", str(stack), "third", "--name", "over")


def test_a_closed_group_is_opened_for_them_and_closed_again(ask: Any, tmp_path: Path) -> None:
    ask("group", "create", "shut", "--workers", "2")
    holds = {"command": ["sh", "-c", f"until test -e {tmp_path}/go; do sleep 0.05; done"]}
    submit(ask, tmp_path, "shut", holds, needs(tmp_path / "a"))
    completed(ask, "shut", 1)
    ask("group", "close", "shut")
    (tmp_path / "a").touch()
    assert not ask("retry", "shut")["new_group"]
    assert ask("group", "show", "shut")["state"] == "closed"
    (tmp_path / "go").touch()
    wait_until(lambda: ask("group", "show", "shut")["settled"], 60, interval=POLL)
    group = ask("group", "show", "shut")
    assert (group["tasks_succeeded"], group["tasks_failed"]) == (2, 1)


def test_what_is_retried_can_be_chosen_and_seen_before(
    ask: Any, env: Mapping[str, str], tmp_path: Path
) -> None:
    ask("group", "create", "chosen", "--workers", "2")
    slow = {"command": ["sleep", "60"], "timeout_seconds": 0.2}
    ids = submit(ask, tmp_path, "chosen", slow, {"command": ["false"]}, {"command": ["nope-x"]})
    completed(ask, "chosen", 3)
    submit(ask, tmp_path, "chosen", {"command": ["sleep", "61"]})
    ask("group", "cancel", "chosen")
    wait_until(lambda: ask("group", "show", "chosen")["settled"], 60, interval=POLL)
    shown = ask("retry", "chosen", "--dry-run", "--reason", "timeout", "--reason", "not_started")
    assert [task["task_id"] for task in shown] == [ids[0], ids[2]]
    said = mitosis("retry", "chosen", "--dry-run", "--cancelled", env=env)
    assert "4 tasks would be submitted to a new task group: chosen-retry-1" in said
    assert ask("group", "list", "--name", "chosen-retry-1") == []  # nothing was made
    assert len(ask("retry", "chosen", "--reason", "exit_code")["task_ids"]) == 1
    again = mitosis("retry", "chosen", "--reason", "exit_code", env=env)
    assert "nothing to retry" in again
    assert "1 cancelled (include them with --cancelled)" in again


# --- watch ------------------------------------------------------------------------------------------


def test_watch_follows_to_the_end_and_ends_as_run_does(
    ask: Any, env: Mapping[str, str], tmp_path: Path
) -> None:
    ask("group", "create", "watched", "--workers", "2")
    holds = {"command": ["sh", "-c", f"until test -e {tmp_path}/go; do sleep 0.05; done"]}
    bad = {"command": ["sh", "-c", "echo no such row 17 >&2; exit 4"]}
    submit(ask, tmp_path, "watched", holds, bad, bad)
    ask("group", "close", "watched")
    with Terminal(
        [*prepared_mitosis(env), "watch", "watched"], env, str(tmp_path), 100
    ) as terminal:
        terminal.read_until("failed 2")
        (tmp_path / "go").touch()
        assert terminal.end() == 1, terminal.text
    assert "1 ok, 2 failed" in terminal.text
    assert re.search(r"2 +exit 4 +no such row 17 ", terminal.text)
    assert "mitosis retry watched" in terminal.text
    said = mitosis("group", "show", "watched", env=env)
    assert "settled" in said


def test_ctrl_c_only_stops_watching(ask: Any, env: Mapping[str, str], tmp_path: Path) -> None:
    ask("group", "create", "left", "--workers", "1")
    submit(ask, tmp_path, "left", {"command": ["sleep", "61"]}, {"command": ["sleep", "61"]})
    with Terminal([*prepared_mitosis(env), "watch", "left"], env, str(tmp_path), 100) as terminal:
        terminal.read_until("running 1")
        terminal.press("\x03")
        assert terminal.end() == 130
    assert "left continues" in terminal.text
    group = ask("group", "show", "left")
    assert (group["state"], group["tasks_cancelled"]) == ("open", 0)
    assert group["tasks_running"] == len(sleeping("left")) == 1
    ask("group", "cancel", "left")
    wait_until(lambda: ask("group", "show", "left")["settled"], 30, interval=POLL)
    group = ask("group", "show", "left")
    assert (group["tasks_completed"], group["tasks_cancelled"]) == (0, 2)
    assert group["tasks_running"] == len(sleeping("left")) == 0
    assert watched(env, "left") == (5, True)


def sleeping(group: str) -> list[int]:
    """The live processes of this test's command, found by the environment of their tasks."""
    found = []
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if process.name() == "sleep" and (
                process.environ().get("MITOSIS_TASK_GROUP_NAME") == group
            ):
                found.append(process.pid)
    return found


def watched(env: Mapping[str, str], *words: str) -> tuple[int, bool]:
    """The exit status of a watch without a terminal, and whether it wrote no control characters."""
    done = subprocess.run(
        [*prepared_mitosis(env), "watch", *words],
        env=env,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.returncode, b"\x1b" not in done.stderr + done.stdout


def test_what_cannot_be_watched_is_said(env: Mapping[str, str]) -> None:
    assert watched(env, "never-made")[0] == 66
    assert watched(env, "--api", "http://127.0.0.1:1", "x")[0] == 4


# --- logs -------------------------------------------------------------------------------------------


def logs(
    env: Mapping[str, str], *words: str, status: int = 0
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [*prepared_mitosis(env), "logs", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    return done


def says(out: str, err: str = "", status: int = 0) -> dict[str, Any]:
    return {"command": ["sh", "-c", f"{out}; {err or ':'} >&2; exit {status}"]}


def test_logs_show_what_is_kept_and_say_where_it_is_cut(
    ask: Any, env: Mapping[str, str], tmp_path: Path
) -> None:
    ask("group", "create", "logged", "--workers", "1", "--setup", "echo ready")
    long = "seq 100000"
    tasks = [says("echo o1", "echo e1"), says("echo o2", "echo e2", 3), says(long)]
    first, second, third = submit(ask, tmp_path, "logged", *tasks)
    completed(ask, "logged", 3)
    everything = logs(env, "logged", "--stdout", status=74)
    assert f"task {third}, succeeded, exit 0: the first 580703 bytes of stdout are missing" in (
        everything.stderr
    )
    assert everything.stdout.startswith("o1\no2\n")
    assert everything.stdout.endswith("\n99999\n100000\n")
    assert re.search(
        r"^==> task \d+, succeeded, exit 0: stdout \(the last \d+ of 588895 bytes\)",
        everything.stderr,
        re.MULTILINE,
    )
    assert logs(env, "logged", "--failed").stdout == "o2\ne2\n"
    assert logs(env, f"logged/{first}").stdout == "o1\ne1\n"
    assert logs(env, f"admin/logged/{second}", "--stderr").stdout == "e2\n"
    assert f"==> task {second}, failed, exit 3: stderr <==" in logs(env, f"logged/{second}").stderr
    (kept,) = json.loads(logs(env, "--json", f"logged/{third}", status=74).stdout)
    assert (kept["cut"], kept["total_bytes"]) == (True, 588_895)
    hook = logs(env, "logged", "--hook", "setup")
    assert hook.stdout == "ready\n"
    assert ": stdout <==" in hook.stderr
    ask("group", "close", "logged")


def test_logs_follow_tasks_as_they_end_and_do_not_show_what_is_not_kept(
    ask: Any, env: Mapping[str, str], tmp_path: Path
) -> None:
    ask("group", "create", "trailed", "--workers", "2")
    waits = f"echo early; until test -e {tmp_path}/go; do sleep 0.05; done; echo late"
    slow, quick = submit(ask, tmp_path, "trailed", says(waits), says("echo quick"))
    ask("group", "close", "trailed")
    completed(ask, "trailed", 1)
    now = logs(env, "trailed")
    assert (now.stdout, "1 tasks have not ended" in now.stderr) == ("quick\n", True)
    assert (
        "follow its output with -f; it is stored when the task ends"
        in logs(env, f"trailed/{slow}").stderr
    )
    with subprocess.Popen(
        [*prepared_mitosis(env), "logs", "trailed", "-f"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = {process.stdout.readline(), process.stdout.readline()}
        assert first == {f"{quick}| quick\n", f"{slow}| early\n"}  # that of the running one as well
        (tmp_path / "go").touch()
        assert process.stdout.read() == f"{slow}| late\n"
        assert process.wait(60) == 0


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", ">&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_or_full_stops_no_run(
    how: str, env: Mapping[str, str], tmp_path: Path
) -> None:
    program = MITOSIS if "&-" in how else prepared_mitosis(env)
    words = [*program, "run", "-o", "kept", "echo", "{}", ":::", "hi"]
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {how}', "sh", *words],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout) == (0, b"hi\n" if how.startswith("2") else b"")
    assert b"Traceback" not in ran.stderr
    assert (tmp_path / "kept" / "1.out").read_bytes() == b"hi\n"
