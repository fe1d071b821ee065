"""How tasks are shown."""

from typing import Any

import pytest

from mitosis.cli.task.view import ending_text, output_text, task_item, tasks_table, what_text
from tests.support.infos import task


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
