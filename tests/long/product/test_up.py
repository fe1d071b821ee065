"""`mitosis up` is killed in the middle of work, stopped, refused. Parts are killed in `tests/long/chaos`."""

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from mitosis.embedded.data_folder import default_run_dir
from tests.support.another_user import listener_of_nobody
from tests.support.processes import descendants, living, read
from tests.support.program import (
    clean_environment,
    mitosis,
    mitosis_json,
    refused,
    running_up,
)
from tests.support.waiting import wait_until

TASKS = 40
WORKERS = 2


def submit(data_dir: Path, marks: Path) -> Path:
    """Tasks that leave a mark each time they are run; gives the file without which half of them wait."""
    gate = data_dir.with_name("gate")
    mitosis_json(data_dir, "group", "create", "work", "--workers", str(WORKERS))
    commands = data_dir.with_name("commands")
    wait = f"until [ $0 -lt {TASKS // 2} -o -e {gate} ]; do sleep 0.05; done"
    script = f'sh -c "echo run >> {marks}/$0; sleep 0.1; {wait}"'
    commands.write_text("".join(f"{script} {number}\n" for number in range(TASKS)))
    mitosis_json(data_dir, "group", "submit", "work", "--command-file", str(commands))
    mitosis_json(data_dir, "group", "close", "work")
    return gate


def results(data_dir: Path) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = mitosis_json(data_dir, "group", "tasks", "work")
    return tasks


def all_succeeded_once(data_dir: Path) -> None:
    mitosis_json(data_dir, "group", "wait", "work")
    group = mitosis_json(data_dir, "group", "show", "work")
    assert (group["state"], group["result"]) == ("complete", "success")
    assert [task["state"] for task in results(data_dir)] == ["succeeded"] * TASKS


def test_a_second_up_on_the_folder_and_a_taken_port_are_refused_and_tls_reaches_every_part(
    data_dir: Path,
) -> None:
    with running_up(data_dir, new=True, more={"MITOSIS_API__TLS": "own"}) as up:
        second = refused("up", "--data-dir", str(data_dir))
        assert f"{data_dir} is in use by process {up.pid}" in second
        assert "MITOSIS_DATA_DIR" in second
        runs_a_task_over_tls(data_dir)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])

        def up_with(setting: str) -> str:
            env = clean_environment(**{setting: port})
            return refused("up", "--data-dir", str(data_dir.with_name(setting)), env=env)

        settings = ("MITOSIS_API__PORT", "MITOSIS_TEMPORAL__PORT")
        with ThreadPoolExecutor() as side_by_side:
            for setting, taken in zip(settings, side_by_side.map(up_with, settings), strict=True):
                assert f"port {port}" in taken
                assert setting in taken
                assert "Traceback" not in taken


def runs_a_task_over_tls(data_dir: Path) -> None:
    """Run a task on the stack's own agent, and follow it, without a setting on the side of clients."""
    url = json.loads((data_dir / "connection.json").read_text())["api_url"]
    assert url.startswith("https://")
    env = clean_environment(MITOSIS_DATA_DIR=str(data_dir))
    assert (
        mitosis("run", "--workers", "1", "--", "echo", "by", "{}", ":::", "tls", env=env)
        == "by tls\n"
    )
    checks = {one["name"]: one for one in mitosis_json(data_dir, "doctor")["checks"]}
    assert checks["api certificate"]["state"] == checks["api ready"]["state"] == "ok"
    (data_dir / "api-ca.pem").rename(data_dir / "moved.pem")
    untrusting = clean_environment(MITOSIS_API_URL=url, MITOSIS_TOKEN="any")
    assert "MITOSIS_API__CA_FILE" in refused("group", "list", env=untrusting)


@pytest.mark.spec("S000-71", "S000-72", "S000-78", "S000-85")
def test_kill_in_the_middle_of_work_leaves_no_process_and_loses_no_task(data_dir: Path) -> None:
    marks = data_dir.with_name("marks")
    marks.mkdir()
    with running_up(data_dir, more={"MITOSIS_TOKEN": "of another deployment"}) as up:
        gate = submit(data_dir, marks)
        wait_until(lambda: len(list(marks.iterdir())) >= TASKS // 4, 60)
        below = descendants(up.pid)
        assert port_of_api(data_dir) not in set().union(*read(below, ports_used))
        up.kill()
        up.wait()
        wait_until(lambda: not living(below), 30, lambda: living(below))
    assert len(list(marks.iterdir())) < TASKS
    if os.geteuid() == 0:
        no_secret_is_sent_to_the_port(data_dir)
    gate.touch()

    with running_up(data_dir) as up:
        all_succeeded_once(data_dir)
        runs = {int(mark.name): len(mark.read_text().split()) for mark in marks.iterdir()}
        assert sorted(runs) == list(range(TASKS))
        assert max(runs.values()) <= 2
        # Again runs what was running, and what had ended a moment ago and was not yet in the journal.
        assert sum(runs.values()) <= TASKS + 2 * WORKERS
        below = descendants(up.pid)
        up.send_signal(signal.SIGINT)
        assert up.wait(90) == 0
        assert living(below) == []
    assert not (data_dir / "connection.json").exists()


def port_of_api(data_dir: Path) -> int:
    url = json.loads((data_dir / "connection.json").read_text())["api_url"]
    return int(url.rsplit(":", 1)[1])


def ports_used(process: psutil.Process) -> set[int]:
    """The ports that a process is connected to; of one that only root may look into: none."""
    try:
        return {one.raddr.port for one in process.net_connections("tcp") if one.raddr}
    except psutil.AccessDenied:
        return set()


def no_secret_is_sent_to_the_port(data_dir: Path) -> None:
    """Another user listens where the killed API did, while programs of its user look for it."""
    port = port_of_api(data_dir)
    url = f"http://127.0.0.1:{port}"
    with listener_of_nobody(("127.0.0.1", port)) as listener:
        env = clean_environment(MITOSIS_DATA_DIR=str(data_dir))
        for words in (("group", "list"), ("group", "list", "--api", url)):
            assert "cannot be reached" in refused(*words, env=env)
        given = clean_environment(MITOSIS_API_URL=url, MITOSIS_TOKEN="planted")
        refused("group", "list", env=given)
        assert listener.stdout is not None
        assert "planted" in listener.stdout.readline()  # and was the first to connect


def test_a_stop_says_what_it_waits_for_and_a_second_one_does_not_wait(data_dir: Path) -> None:
    marks, said = data_dir.with_name("marks"), data_dir.with_name(f"{data_dir.name}.up.log")
    marks.mkdir()
    with running_up(data_dir) as up:
        submit(data_dir, marks)
        wait_until(lambda: len(list(marks.iterdir())) >= TASKS // 2 + WORKERS, 60)
        below = descendants(up.pid)
        up.send_signal(signal.SIGINT)
        wait_until(lambda: "running tasks have 30 s to end" in said.read_text(), 30, said.read_text)
        assert living(below), "it waits for the tasks that wait"
        up.send_signal(signal.SIGINT)
        assert up.wait(25) == 130
        wait_until(lambda: not living(below), 30, lambda: living(below))
    assert "Traceback" not in said.read_text()
    assert not default_run_dir(data_dir).exists(), "nothing of the killed agent is left"
