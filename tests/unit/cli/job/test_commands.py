"""`mitosis job check | schema | define --dry-run | graph | diff`: no server is asked."""

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mitosis.cli.exit import ExitStatus
from tests.support.command import mitosis

pytestmark = pytest.mark.usefixtures("no_stack_here")

PIPELINE = """\
name: pipeline
parameters:
  date: {}
  shards: {type: integer, default: 200}
steps:
  prepare:
    command: [./prepare, "{{ params.date }}"]
  measure:
    command: [./measure, "{{ task.index }}"]
    after: prepare
    count: "{{ params.shards }}"
  sizes:
    handler: shop:size
    after: {measure: each}
  clean:
    command: [./clean]
    after: {sizes: always}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return str(path)


def test_check_says_what_a_right_definition_is(file: str) -> None:
    ran = mitosis("job", "check", file, "--json")
    assert ran.status == ExitStatus.OK
    assert {k: ran.json[k] for k in ("name", "steps", "parameters")} == {
        "name": "pipeline",
        "steps": 4,
        "parameters": ["date", "shards"],
    }
    assert mitosis("job", "check", file).out.startswith("job         pipeline\n")


def test_check_reads_what_the_shell_generates() -> None:
    reading, writing = os.pipe()
    os.write(writing, PIPELINE.encode())
    os.close(writing)
    try:
        ran = mitosis("job", "check", f"/dev/fd/{reading}")
    finally:
        os.close(reading)
    assert ran.status == ExitStatus.OK, ran.err


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 1_000_001)
    for name, why in {
        ".": "Is a directory",
        "missing": "No such file or directory",
        "large": "it has more than 1000000 bytes",
    }.items():
        ran = mitosis("job", "check", str(tmp_path / name))
        assert ran.status == ExitStatus.INVALID
        assert f"cannot read {tmp_path / name}: {why}" in ran.err


def test_check_lists_all_that_is_wrong_with_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(PIPELINE.replace("after:", "aftr:").replace("shop:size", "shop"))
    ran = mitosis("job", "check", str(path))
    assert ran.status == ExitStatus.INVALID
    assert ran.err.splitlines()[:2] == [
        f"error: {path} has 4 problems",
        f"{path}:10:5: steps.measure.aftr: unknown field; did you mean after?",
    ]
    assert len(ran.err.splitlines()) == 5
    problems = mitosis("job", "check", str(path), "--json").problem["problems"]
    assert [one["line"] for one in problems] == [10, 13, 14, 17]


def test_a_key_cannot_control_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text('name: j\n"\\e[2J": 1\nsteps: {a: {command: [x]}}\n')
    assert "\x1b" not in mitosis("job", "check", str(path)).err


def test_a_definition_comes_from_standard_input() -> None:
    assert mitosis("job", "check", "-", stdin=PIPELINE).status == ExitStatus.OK
    assert "stdin:1:1" in mitosis("job", "check", "-", stdin="name: x").err


def test_a_dry_run_prints_tasks_edges_and_counts(file: str) -> None:
    ran = mitosis("job", "define", "--dry-run", file, "-p", "date=2026-11-28", "-p", "shards=3")
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[:5] == [
        ["step", "layer", "tasks", "runs", "group", "after", "when"],
        ["prepare", "1", "1", "command", "main"],
        ["measure", "2", "3", "command", "main", "prepare:", "success"],
        ["sizes", "3", "3", "handler", "main", "measure:", "each"],
        ["clean", "4", "1", "command", "main", "sizes:", "always"],
    ]
    assert ran.out.splitlines()[-1] == "4 steps, 8 tasks; 3 edges between steps, 3 between tasks"
    data = mitosis("job", "define", "--dry-run", file, "-p", "date=x", "--json").json
    assert (data["tasks"], data["task_edges"], data["is_complete"]) == (402, 200, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "parameters.date: is required"),
        (["-p", "dat=1"], "did you mean date?"),
        (["-p", "date"], "-p: must be NAME=VALUE"),
        (["-p", "date=1", "-p", "date=2"], "-p: gives date twice"),
        (["-p", "date=1", "-p", "shards=many"], "must be an integer, not a string"),
        (["-p", "date=1", "-p", "shards=-1"], "a number of tasks up to 1000000"),
    ],
)
def test_a_parameter_that_is_wrong_is_refused(file: str, words: list[str], why: str) -> None:
    ran = mitosis("job", "define", "--dry-run", file, *words)
    assert ran.status == ExitStatus.INVALID
    assert why in ran.err


def test_the_graph_is_text_or_an_image(file: str) -> None:
    text = mitosis("job", "graph", file).out
    assert text.startswith("pipeline\n└─ prepare  [command]\n   └─ measure  params.shards tasks")
    ET.fromstring(mitosis("job", "graph", file, "--svg").out)  # noqa: S314 - it was made here
    edges = mitosis("job", "graph", file, "--json").json["edges"]
    assert edges[0] == {"from": "measure", "to": "sizes", "on": "each"}


def test_a_difference_is_a_line(file: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PIPELINE.replace("200", "400"))
    assert mitosis("job", "diff", file, str(other)).out == "parameters.shards.default: 200 → 400\n"
    assert mitosis("job", "diff", file, str(other), "--json").json == [
        {"field": "parameters.shards.default", "before": 200, "after": 400}
    ]
    same = mitosis("job", "diff", file, file)
    assert (same.out, same.err) == ("", "the definitions are the same\n")


def test_the_schema_is_json() -> None:
    assert mitosis("job", "schema").json["title"] == "Mitosis job definition"
