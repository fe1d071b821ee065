"""`mitosis up` is killed in the middle of work, and stopped in order."""

import signal
from pathlib import Path
from typing import Any

from tests.support.processes import descendants, living
from tests.support.program import mitosis_json, running_up
from tests.support.waiting import wait_until

TASKS = 60
WORKERS = 2


def submit(data_dir: Path, marks: Path) -> None:
    """Tasks that take a moment and leave a mark each time they are run."""
    mitosis_json(data_dir, "group", "create", "work", "--workers", str(WORKERS))
    commands = data_dir.with_name("commands")
    script = f'sh -c "echo run >> {marks}/$0; sleep 0.1"'
    commands.write_text("".join(f"{script} {number}\n" for number in range(TASKS)))
    mitosis_json(data_dir, "group", "submit", "work", "--command-file", str(commands))
    mitosis_json(data_dir, "group", "close", "work")


def results(data_dir: Path) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = mitosis_json(data_dir, "group", "tasks", "work")
    return tasks


def test_kill_in_the_middle_of_work_leaves_no_process_and_loses_no_task(data_dir: Path) -> None:
    marks = data_dir.with_name("marks")
    marks.mkdir()
    with running_up(data_dir) as up:
        submit(data_dir, marks)
        wait_until(lambda: len(list(marks.iterdir())) >= TASKS // 4, 60)
        below = descendants(up.pid)
        up.kill()
        up.wait()
        wait_until(lambda: not living(below), 30, lambda: living(below))
    done = len(list(marks.iterdir()))
    assert done < TASKS, "killed too late to prove anything"

    with running_up(data_dir) as up:
        mitosis_json(data_dir, "group", "wait", "work")
        group = mitosis_json(data_dir, "group", "show", "work")
        assert (group["state"], group["result"]) == ("complete", "success")
        states = [task["state"] for task in results(data_dir)]
        assert states == ["succeeded"] * TASKS
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
