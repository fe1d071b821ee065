"""A pipeline of five steps on a real `mitosis up`, which is killed in the middle; its watch goes on."""

import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.prepared import PreparedPopen
from tests.support.processes import descendants, living
from tests.support.program import clean_environment, mitosis, mitosis_json, running_up
from tests.support.waiting import wait_until

TASKS = 200
FAILS_ONCE = 7
PIPELINE = """\
name: pipeline
parameters:
  date: {}
  tasks: {type: integer}
groups:
  main:
    plan: {worker_count: 2}
    setup: {command: [mkdir, -p, FOLDER/work]}
    teardown: {command: [rm, -r, FOLDER/work]}
steps:
  prepare:
    command: [sh, -c, 'echo "$1" > FOLDER/work/date', sh, "{{ params.date }}"]
  measure:
    after: prepare
    count: "{{ params.tasks }}"
    command: [sh, FOLDER/measure, "{{ task.index }}"]
    retry: {max_attempts: 2, delay: 1s}
  merge:
    after: measure
    handler: builtins:len
    arguments: ["{{ results.measure }}"]
  publish:
    after: merge
    when: results.merge == params.tasks
    command: [cp, FOLDER/work/date, "FOLDER/published-{{ results.merge }}"]
  clean:
    after: {measure: always, publish: always}
    command: [rm, FOLDER/work/date]
"""
MEASURE = f"""\
test -e FOLDER/work/date || exit 9
echo run >> FOLDER/marks/$1
[ $1 -ne {FAILS_ONCE} ] || [ $(wc -l < FOLDER/marks/$1) -gt 1 ] || exit 1
until [ $1 -lt {TASKS // 2} ] || [ -e FOLDER/gate ]; do sleep 0.05; done
"""


@dataclass
class Beside:
    """A command that runs beside the test, and the file with what it says."""

    process: PreparedPopen
    output: Path

    def said(self) -> str:
        return self.output.read_text()


def beside(data_dir: Path, command: str, *words: str) -> Beside:
    output = Path(tempfile.mkstemp(dir=data_dir.parent)[1])
    with output.open("wb") as log:
        given = ("job", command, "--data-dir", str(data_dir), *words)
        return Beside(
            PreparedPopen("mitosis.cli", given, clean_environment(), log.fileno()), output
        )


def write_pipeline(folder: Path) -> Path:
    (folder / "marks").mkdir()
    (folder / "measure").write_text(MEASURE.replace("FOLDER", str(folder)))
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.replace("FOLDER", str(folder)))
    return file


@pytest.mark.spec("S001-46")
def test_a_pipeline_outlives_a_kill_of_everything_and_so_does_its_watch(
    data_dir: Path, tmp_path: Path
) -> None:
    file, marks = write_pipeline(tmp_path), tmp_path / "marks"
    with running_up(data_dir) as up:
        mitosis("job", "define", "--data-dir", str(data_dir), str(file))
        given = ("-p", "date=2026-11-28", "-p", f"tasks={TASKS}")
        start = beside(data_dir, "start", "pipeline", *given, "--wait", "--json")
        wait_until(lambda: len(list(marks.iterdir())) > TASKS // 2, 60)
        watch, left = (beside(data_dir, "watch", "@last") for _ in range(2))
        wait_until(lambda: all("measure: running" in one.said() for one in (watch, left)), 30)
        left.process.send_signal(signal.SIGINT)
        assert left.process.wait(30) == 130
        assert "the run continues" in left.said()
        below = descendants(up.pid)
        up.kill()
        up.wait()
        wait_until(lambda: not living(below), 30, lambda: living(below))
    assert [one.process.poll() for one in (start, watch)] == [None, None], (
        watch.said() + start.said()
    )
    (tmp_path / "gate").touch()

    with running_up(data_dir):
        assert watch.process.wait(90) == 0, watch.said()
        assert start.process.wait(30) == 0, start.said()
        run = mitosis_json(data_dir, "job", "show", "@last")
        merged = mitosis_json(data_dir, "job", "tasks", "@last", "merge")
        measured = mitosis_json(data_dir, "job", "tasks", "@last", "measure")
    assert (run["state"], run["tasks_succeeded"], run["tasks_failed"]) == ("success", TASKS + 4, 0)
    assert [one["executor"] for one in run["steps"]] == [
        *["command"] * 2,
        "handler",
        *["command"] * 2,
    ]
    assert [one["result"] for one in merged] == [TASKS]
    assert [one["index"] for one in measured] == list(range(TASKS))
    assert measured[FAILS_ONCE]["attempt"] > 1
    assert sorted(int(one.name) for one in marks.iterdir()) == list(range(TASKS))
    assert (tmp_path / f"published-{TASKS}").read_text() == "2026-11-28\n"
    lines = watch.said().splitlines()
    summary = next(
        at for at, line in enumerate(lines) if line.startswith("pipeline version 1  success")
    )
    tree = [line.strip("│├└─ ").split()[:3] for line in lines[summary + 1 :]]
    names = ["prepare", "measure", "merge", "publish", "clean"]
    assert tree == [["✓", name, "succeeded"] for name in names]
