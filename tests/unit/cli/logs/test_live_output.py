"""What `mitosis logs -f` writes for the events it gets: attempts, streams and cut characters kept apart."""

import io
import sys
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

import pytest

from mitosis.cli.logs.live_output import ManyTasks, OneTask, StandardOutput
from mitosis.contracts.following import OutputEvent
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.lifecycle import TaskState

STREAMS = ("stdout", "stderr")


class Kept:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, stream: str = "") -> None:
        self.data += data

    def flush(self) -> None: ...

    def begin_line(self) -> None: ...


def output(
    data: bytes, task: int = 7, attempt: int = 1, stream: Literal["stdout", "stderr"] = "stdout"
) -> OutputEvent:
    return OutputEvent.model_construct(
        kind="output", task_id=task, attempt=attempt, stream=stream, data=data
    )


def test_the_rest_of_one_attempt_is_not_glued_to_the_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = Kept()
    many = ManyTasks(sink, STREAMS, only_failed=False)
    for event in (
        output(b"one\nhal"),
        output(b"other", task=8),
        output(b"oops", stream="stderr"),
        output(b"one\ntwo\n", attempt=2),
    ):
        many.show(event)
    assert sink.data == b"7| one\n7| hal\n7! oops\n7| one\n7| two\n"
    assert capsys.readouterr().err == "==> task 7, attempt 2 <==\n"


def test_of_the_failed_only_the_last_attempt_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    sink = Kept()
    many = ManyTasks(sink, STREAMS, only_failed=True)
    many.show(output(b"first\nhal"))
    many.show(output(b"second\n", attempt=2))
    failed = TaskInfo(
        task_id=7,
        task_uuid=uuid4(),
        task_group_id=uuid4(),
        state=TaskState.FAILED,
        attempt=2,
        spec={"command": ["false"]},
        exit_code=3,
        created_at=datetime.now(UTC),
    )
    many.show(OutputEvent.model_construct(kind="result", task_id=7, result=failed))
    assert sink.data == b"7| second\n"
    assert capsys.readouterr().err == "==> task 7: failed, exit 3 <==\n"


@pytest.mark.parametrize("cut", [1, 2])
def test_a_character_cut_by_output_of_the_other_stream_is_whole_on_a_terminal(
    cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    euro = "€".encode()
    one = OneTask(StandardOutput(), STREAMS)
    one.show(output(euro[:cut]))
    one.show(output("ü".encode(), stream="stderr"))
    one.show(output(euro[cut:]))
    written = terminal.getvalue()
    assert "€" in written
    assert "ü" in written
    assert "\ufffd" not in written


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_heading_adds_no_byte_to_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    sink = Kept()
    one = OneTask(sink, STREAMS)
    for event in (output(b"no newline"), output(b"again", attempt=2), output(b"", attempt=3)):
        one.show(event)
    assert sink.data == b"no newlineagain"
    assert "attempt 2: stdout" in capsys.readouterr().err
