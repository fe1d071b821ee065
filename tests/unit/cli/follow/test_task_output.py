"""Which input a task came from, the order of outputs, and the job log."""

import asyncio
import base64
import io
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitosis.cli.follow.display import NoDisplay
from mitosis.cli.follow.exit_statuses import RunExit
from mitosis.cli.follow.task_output import (
    OutputOptions,
    Stream,
    StreamOutput,
    TaskOutput,
    check_output,
    joblog_line,
    make_output,
)
from mitosis.cli.run.feeding import InputNumbers
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import TaskInfo
from mitosis.worker.output import end_of
from tests.support.command import mitosis
from tests.support.examples import examples
from tests.unit.cli.follow.test_failures import failed


def test_a_task_is_found_by_its_number_whoever_submits_beside() -> None:
    async def numbers() -> list[int]:
        known = InputNumbers()
        late = asyncio.create_task(known.wait_for(30))
        known.add([10, 11, 12])
        assert not await _is_known(known, 13)
        known.add([20, 21])
        known.add([15, 30])  # an answer that came late, and a task of somebody else between
        return [await known.wait_for(task) for task in (10, 12, 21, 15)] + [await late]

    assert asyncio.run(numbers()) == [1, 3, 5, 6, 7]


async def _is_known(known: InputNumbers, task_id: int) -> bool:
    asking = asyncio.create_task(known.wait_for(task_id))
    await asyncio.sleep(0)  # it has looked
    found = asking.done()
    asking.cancel()
    return found


def test_output_in_order_waits_for_the_earlier_and_loses_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    said = io.StringIO()
    output = TaskOutput(NoDisplay(said), OutputOptions(in_order=True))
    for number in (3, 1, 5):
        detail = {"stdout": f"{number}\n", "stdout_bytes": 2 if number < 5 else 9_000}
        output.add(number, failed(number, "", detail=detail))
    assert capfd.readouterr().out == "1\n"
    output.finish()
    assert capfd.readouterr().out == "3\n5\n"
    assert said.getvalue() == "task 5: 8998 bytes of stdout are missing (bytes 0 to 8997)\n"
    assert len(output.missing) == 1


def test_output_that_is_no_text_comes_out_byte_by_byte(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    data = b"\xff\0\xc3\nend\xc3"
    kept = end_of(data, len(data))
    detail = {"stdout": kept.text, "stdout_base64": kept.exact, "stdout_bytes": len(data)}
    said = io.StringIO()
    for wanted in (OutputOptions(folder=tmp_path), OutputOptions(tag_lines=True)):
        output = TaskOutput(NoDisplay(said), wanted)
        output.add(1, failed(7, "", detail=detail))
        output.finish()
    assert (tmp_path / "1.out").read_bytes() == data
    assert capfdbinary.readouterr().out == data + b"7\t\xff\0\xc3\n7\tend\xc3\n"
    assert said.getvalue() == ""  # nothing is missing


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("tagged", [False, True])
def test_on_a_terminal_a_task_controls_nothing(
    monkeypatch: pytest.MonkeyPatch, tagged: bool
) -> None:
    """As `mitosis logs`; a character may be cut by the tail."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as shown:
        with _Terminal(os.fdopen(writer, "wb"), encoding="utf-8") as terminal:
            monkeypatch.setattr(sys, "stdout", terminal)
            said = io.StringIO()
            output = TaskOutput(NoDisplay(said), OutputOptions(tag_lines=tagged))
            text = "\x1b]0;title\x07 \u202ereversed \x9b2J caf\xe9\n"
            detail = {"stdout": text, "stdout_bytes": len(text.encode())}
            output.add(1, failed(7, "", detail=detail))
        line = r"\x1b]0;title\x07 \x202ereversed \x9b2J " + "caf\xe9\n"
        assert shown.read().decode() == ("7\t" if tagged else "") + line


def test_the_job_log_has_the_columns_of_parallel() -> None:
    task = failed(
        7,
        "",
        spec={"command": ["echo", "a b", "x\ny"]},
        started_at="2026-01-01T00:00:01Z",
        finished_at="2026-01-01T00:00:02.5Z",
        detail={"stdout_bytes": 12},
    )
    line = joblog_line(3, task)
    assert line == "3\th1\t1767225601.000\t     1.500\t0\t12\t1\t0\techo 'a b' 'x\\ny'\n"


def test_a_folder_that_cannot_be_made_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match="cannot write") as refused:
        check_output(OutputOptions(folder=tmp_path / "file"))
    assert refused.value.facts["option"] == "--keep-output"
    with pytest.raises(InvalidRequest, match="cannot write") as refused:
        make_output(OutputOptions(joblog=tmp_path))
    assert refused.value.facts["option"] == "--joblog"


def test_a_folder_with_the_outputs_of_another_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.out").touch()
    check_output(OutputOptions(folder=tmp_path))
    (tmp_path / "2.err").touch()
    with pytest.raises(InvalidRequest, match=r"already has outputs of another run, such as 2\.err"):
        check_output(OutputOptions(folder=tmp_path))


def test_a_dry_run_refuses_the_folder_that_the_run_would_refuse(tmp_path: Path) -> None:
    words = ["run", "--dry-run", "-o", str(tmp_path / "out"), "true", "{}", ":::", "a"]
    assert mitosis(*words).status == RunExit.OK
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "1.out").touch()
    ran = mitosis(*words)
    assert ran.status == RunExit.USAGE
    assert "--keep-output" in ran.err


def test_a_dry_run_as_json_has_the_fields_of_the_task_also_for_what_is_no_text() -> None:
    ran = mitosis("run", "--dry-run", "--json", "-a", "-", "echo", "{}", stdin=b"a\xff\nb\n")
    one, two = (json.loads(line) for line in ran.out.splitlines())
    assert one["command_encoding"] == "base64"
    assert base64.b64decode(one["command"][1]) == b"a\xff"
    assert two["command"] == ["echo", "b"]


class Begun:
    """The beginnings of outputs, as files."""

    def __init__(self, folder: Path, beginnings: dict[tuple[int, Stream], bytes]) -> None:
        self._files = {}
        for (task, stream), data in beginnings.items():
            self._files[task, stream] = folder / f"begun.{task}.{stream}"
            self._files[task, stream].write_bytes(data)

    def beginning(self, task: TaskInfo, stream: Stream) -> Path | None:
        return self._files.get((task.task_id, stream))

    def forget(self, task: TaskInfo) -> None: ...


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 50), st.integers(0, 50)), max_size=4)
)
def test_bytes_come_out_as_they_are_or_are_named(
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
    outputs: list[tuple[bytes, int, int]],
) -> None:
    """For any bytes, any part that was read while the task ran, and any length of the kept tail."""
    begun: dict[tuple[int, Stream], bytes] = {}
    expected, missing, whole = b"", 0, []
    tasks = []
    for number, (data, read, kept) in enumerate(outputs, 1):
        tail = end_of(data[len(data) - min(kept, len(data)) :], len(data))
        detail = {"stdout": tail.text, "stdout_base64": tail.exact, "stdout_bytes": len(data)}
        tasks.append((number, failed(number, "", detail=detail)))
        begun[number, "stdout"] = data[:read]
        gap = StreamOutput(tasks[-1][1], "stdout", None).missing
        gap_from, gap_to = min(read, len(data)), gap.size if gap is not None else 0
        lost = max(0, gap_to - gap_from)
        missing += lost
        whole.append(data if not lost else data[:gap_from] + data[gap_to:])
        expected += whole[-1]
    output = TaskOutput(
        NoDisplay(io.StringIO()),
        OutputOptions(folder=tmp_path, in_order=True),
        beginnings=Begun(tmp_path, begun),
    )
    for number, task in reversed(tasks):
        output.add(number, task)
    output.finish()
    assert capfdbinary.readouterr().out == expected
    assert [(tmp_path / f"{n}.out").read_bytes() for n, _ in tasks] == whole
    assert sum(gap.size for gap in output.missing) == missing


def test_json_has_the_whole_output(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    data = b"\xff" + b"x" * 20
    tail = end_of(data[-5:], len(data))
    detail = {"stdout": tail.text, "stdout_base64": tail.exact, "stdout_bytes": len(data)}
    begun = Begun(tmp_path, {(1, "stdout"): data[:18]})
    output = TaskOutput(NoDisplay(io.StringIO()), OutputOptions(), as_json=True, beginnings=begun)
    output.add(1, failed(1, "", detail=detail))
    said = json.loads(capfdbinary.readouterr().out)["result"]["detail"]
    assert base64.b64decode(said["stdout_base64"]) == data
    assert said["stdout"] == "\ufffd" + "x" * 20
    assert output.missing == []
