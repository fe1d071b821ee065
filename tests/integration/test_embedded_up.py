"""`mitosis up`: it, or a part of it, is killed in the middle of work; stopped; refused."""

import signal
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.processes import descendants, living
from tests.support.program import clean_environment, mitosis_json, refused, running_up
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


def child(up: int, *, name: str, words: str = "") -> psutil.Process:
    """The one direct child of the supervisor with this name whose command line has ``words``."""
    children = psutil.Process(up).children()
    [found] = [c for c in children if c.name().startswith(name) and words in " ".join(c.cmdline())]
    return found


def all_succeeded_once(data_dir: Path) -> None:
    mitosis_json(data_dir, "group", "wait", "work")
    group = mitosis_json(data_dir, "group", "show", "work")
    assert (group["state"], group["result"]) == ("complete", "success")
    assert [task["state"] for task in results(data_dir)] == ["succeeded"] * TASKS


@pytest.mark.parametrize(
    ("name", "words"),
    [("postgres", "-D"), ("temporal", "start-dev"), ("python", "agent")],
    ids=["postgres", "temporal", "agent"],
)
def test_a_killed_part_comes_back_and_no_task_is_lost(
    data_dir: Path, name: str, words: str
) -> None:
    marks = data_dir.with_name("marks")
    marks.mkdir()
    with running_up(data_dir) as up:
        gate = submit(data_dir, marks)
        wait_until(lambda: len(list(marks.iterdir())) >= TASKS // 4, 60)
        victim = child(up.pid, name=name, words=words)
        victim.kill()
        gate.touch()
        wait_until(lambda: len(list(marks.iterdir())) == TASKS, 90)
        all_succeeded_once(data_dir)
        assert child(up.pid, name=name, words=words).pid != victim.pid


def test_a_second_up_on_the_folder_and_a_taken_port_are_refused(data_dir: Path) -> None:
    with running_up(data_dir) as up:
        second = refused("up", "--data-dir", str(data_dir))
        assert f"{data_dir} is in use by process {up.pid}" in second
        assert "MITOSIS_DATA_DIR" in second
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for setting in ("MITOSIS_API__PORT", "MITOSIS_TEMPORAL__PORT"):
            env = clean_environment(**{setting: port})
            place = data_dir.with_name(setting)
            taken = refused("up", "--data-dir", str(place), env=env)
            assert f"port {port}" in taken
            assert setting in taken
            assert "Traceback" not in taken


def test_kill_in_the_middle_of_work_leaves_no_process_and_loses_no_task(data_dir: Path) -> None:
    marks = data_dir.with_name("marks")
    marks.mkdir()
    with running_up(data_dir) as up:
        gate = submit(data_dir, marks)
        wait_until(lambda: len(list(marks.iterdir())) >= TASKS // 4, 60)
        below = descendants(up.pid)
        up.kill()
        up.wait()
        wait_until(lambda: not living(below), 30, lambda: living(below))
    assert len(list(marks.iterdir())) < TASKS
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
