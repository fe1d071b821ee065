"""The disk of the data folder full under a real `mitosis up`: said where, nothing broken, all goes on.

PostgreSQL, Temporal's SQLite, the agent's journal and scratch and every log lie on that one small disk.
Mounting one needs root; elsewhere it is skipped.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.program import clean_environment, mitosis_json, prepared_mitosis, running_up
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk"),
]

SIZE = "256m"
LEFT_BYTES = 1_000_000


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    place.mkdir(mode=0o711)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=711", "tmpfs", str(place)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(file: Path, leave: int) -> None:
    """Make a file so large that ``leave`` bytes are free on its disk."""
    if (size := free(file) - leave) > 0:
        with file.open("wb") as opened:
            os.posix_fallocate(opened.fileno(), 0, size)


def free(path: Path) -> int:
    return psutil.disk_usage(str(path.parent)).free


def tried(data: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """One command with ``--json``; it may fail."""
    env = clean_environment(MITOSIS_DATA_DIR=str(data))
    return subprocess.run(
        [*prepared_mitosis(env), *words[:2], "--json", *words[2:]],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def trouble(data: Path) -> str:
    """What `mitosis manager list` says that the one host lacks."""
    (host,) = mitosis_json(data, "manager", "list")
    return host["report_trouble"] or ""


def test_a_full_disk_is_named_and_everything_goes_on_when_there_is_space(tmp_path: Path) -> None:
    with small_disk(disk := tmp_path / "disk"):
        data, filler, ran = disk / "data", disk / "filler", tmp_path / "ran"
        with running_up(data, more={"MITOSIS_AGENT__MIN_FREE_BYTES": "30000000"}):
            mitosis_json(data, "group", "create", "full", "--workers", "2")
            command = ("--", "sh", "-c", f"echo $MITOSIS_TASK_ID >>{ran}")
            first = mitosis_json(data, "group", "submit", "full", *command)["task_ids"]
            wait_until(lambda: shown(data)["tasks_completed"] == 1, 60)

            fill(filler, 25_000_000)
            asked = mitosis_json(data, "group", "submit", "full", *command)["task_ids"]
            wait_until(lambda: "disk.nearly_full" in agent_log(data), 30)
            wait_until(lambda: "it claims nothing: the disk of" in trouble(data), 30)
            waiting = mitosis_json(data, "group", "submit", "full", *command)["task_ids"]
            fill(disk / "filler2", LEFT_BYTES)
            accepted, problem = submit_until_refused(data)
            assert (problem["code"], problem["exit_status"]) == ("storage_full", 69)
            assert problem["folder"] == str(data)
            assert f"the disk of {data} is full" in problem["detail"]
            fill(disk / "filler3", 0)
            more, problem = submit_until_refused(data)
            accepted += more
            assert problem["code"] == "storage_full"
            assert tried(data, "group", "close", "full").returncode in (0, 69)
            assert set(map(int, ran.read_text().split())) == {*first, *asked}

            for file in disk.glob("filler*"):
                file.unlink()
            wait_until(
                lambda: tried(data, "group", "close", "full").returncode == 0, 60, interval=0.2
            )
            wait_until(lambda: not trouble(data), 60)
            settled = mitosis_json(data, "group", "wait", "full", "--timeout", "90s")
            assert (settled["result"], settled["settled"]) == ("success", True)
            done = {task["task_id"] for task in mitosis_json(data, "group", "tasks", "full")}
            assert done >= {*first, *asked, *waiting, *accepted}
            runs = [int(word) for word in ran.read_text().split()]
            assert sorted(runs) == sorted(set(runs))
            assert settled["tasks_succeeded"] == len(done)
            assert "disk.has_room" in agent_log(data)


def submit_until_refused(data: Path) -> tuple[list[int], Any]:
    """Tasks with bulky environments, until one submission fails; what was accepted, and the problem."""
    accepted: list[int] = []
    for number in range(40):
        file = data.parent.parent / "bulk.json"
        bulk = {"command": ["true"], "environment": {"BULK": os.urandom(50_000).hex()}}
        file.write_text(json.dumps([bulk] * 10))
        done = tried(data, "group", "submit", "full", "--json-file", str(file))
        if done.returncode:
            return accepted, json.loads(done.stderr.splitlines()[-1])
        accepted += json.loads(done.stdout)["task_ids"]
        assert number < 39, free(data)
    raise AssertionError


def shown(data: Path) -> Mapping[str, Any]:
    return dict(mitosis_json(data, "group", "show", "full"))


def agent_log(data: Path) -> str:
    return (data / "logs/agent.log").read_text()
