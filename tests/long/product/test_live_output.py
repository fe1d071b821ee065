"""Following the output of running tasks on one real stack: commands, handlers, retries, groups, floods."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.program import clean_environment, mitosis_json, prepared_mitosis, running_up
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("live") / "data"
    with running_up(folder, prepared_agent=True):
        words = ("--workers", "2", "--python-path", str(ROOT))
        mitosis_json(folder, "group", "create", "live", *words)
        yield folder


@pytest.fixture
def submit(stack: Path, tmp_path: Path) -> Any:
    """``submit(task, …)``: into the group ``live``; their numbers."""

    def submitted(*tasks: dict[str, Any]) -> list[int]:
        file = tmp_path / "tasks.json"
        file.write_text(json.dumps(tasks))
        said = mitosis_json(stack, "group", "submit", "live", "--json-file", str(file))
        return list(said["task_ids"])

    return submitted


class Following:
    """A `mitosis logs -f` that runs; what it has said so far."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._files = (folder / "out", folder / "err")

    @property
    def out(self) -> bytes:
        return self._files[0].read_bytes()

    @property
    def err(self) -> str:
        return self._files[1].read_text()

    def ended(self) -> int:
        return self.process.wait(40)


@contextmanager
def following(stack: Path, folder: Path, *words: str) -> Iterator[Following]:
    folder.mkdir(exist_ok=True)
    env = clean_environment(MITOSIS_DATA_DIR=str(stack))
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [*prepared_mitosis(env), "logs", "-f", *words], env=env, stdout=out, stderr=err
        )
        try:
            yield Following(folder, process)
        finally:
            process.kill()
            process.wait()


def gated(script: str, gate: Path) -> dict[str, Any]:
    """A command that says something, then waits for ``gate``, then says more."""
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    return {"command": ["bash", "-c", script.replace("WAIT", wait)]}


def test_a_running_command_is_followed_from_its_past_to_its_exit(
    stack: Path, submit: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    task = gated(
        r"printf 'early \377 bytes\n'; echo oops >&2; WAIT; printf 'late \376'; exit 3", gate
    )
    (number,) = submit(task)
    with following(stack, tmp_path / "f", f"live/{number}") as it:
        wait_until(lambda: b"bytes\n" in it.out and b"oops" in it.out, 30)
        assert b"late" not in it.out
        assert b"early \xff bytes\n" in it.out  # as it was, before it has ended
        gate.touch()
        assert it.ended() == 0
    assert b"late \xfe" in it.out  # the last words too, though its result keeps text
    assert it.out.count(b"early") == it.out.count(b"oops") == it.out.count(b"late") == 1
    assert f"task {number}, attempt 1: " in it.err
    assert f"task {number}: failed, exit 3" in it.err
    with following(stack, tmp_path / "g", f"live/{number}", "--stdout") as again:
        assert again.ended() == 0
    assert b"late" in again.out
    assert b"oops" not in again.out


def test_a_python_handler_is_followed_as_well(stack: Path, submit: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    handler = "tests.support.sample_handlers:says_then_waits"
    (number,) = submit({"handler": handler, "arguments": {"gate": str(gate)}})
    with following(stack, tmp_path / "f", f"live/{number}") as it:
        wait_until(lambda: b"before the gate\n" in it.out, 30, lambda: it.err)
        gate.touch()
        assert it.ended() == 0
    assert it.out == b"before the gate\nbehind the gate\n"
    assert f"task {number}: succeeded" in it.err


def test_a_retry_is_a_new_attempt(stack: Path, submit: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    script = (
        "echo try $MITOSIS_TASK_ATTEMPT; if [ $MITOSIS_TASK_ATTEMPT = 1 ]; then WAIT; exit 7; fi; "
    )
    task = gated(script + f"while [ ! -e {second} ]; do sleep 0.1; done", first)
    (number,) = submit({**task, "retry": {"max_attempts": 2}})
    with following(stack, tmp_path / "f", f"live/{number}") as it:
        wait_until(lambda: b"try 1\n" in it.out, 30, lambda: it.err)
        first.touch()
        wait_until(lambda: b"try 2\n" in it.out, 30, lambda: it.err)
        second.touch()
        assert it.ended() == 0
    assert it.out == b"try 1\ntry 2\n"
    assert f"task {number}, attempt 1: failed, exit 7" in it.err
    assert f"task {number}, attempt 2: " in it.err


def test_a_flood_is_skipped_with_a_mark_and_not_kept(
    stack: Path, submit: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    flood = "WAIT; head -c 300000000 /dev/zero | tr '\\0' x; echo; echo over; sleep 0.3"
    (number,) = submit(gated("echo begin; " + flood, gate))
    with following(stack, tmp_path / "f", f"live/{number}") as it:
        wait_until(lambda: b"begin" in it.out, 30)
        gate.touch()
        assert it.ended() == 74
    assert "bytes skipped]" in it.err
    assert len(it.out) < 100_000_000
    assert it.out.endswith(b"over\n")
    with following(stack, tmp_path / "g", f"live/{number}", "--json") as again:
        assert again.ended() == 74, "what is kept of it begins and ends, and its middle is missing"
    events = [json.loads(line) for line in again.out.splitlines()]
    assert [event["kind"] for event in events[-3:]] == ["output", "result", "end"]
    assert events[-3]["offset"] > 299_000_000
    assert sum(event.get("skipped", 0) for event in events) > 200_000_000


def test_a_group_is_followed_line_by_line_with_the_number_in_front(
    stack: Path, tmp_path: Path
) -> None:
    mitosis_json(stack, "group", "create", "many", "--workers", "2")
    gate = tmp_path / "gate"
    tasks = [gated(f"echo one {n}; printf half; WAIT; echo s; echo bad >&2", gate) for n in (1, 2)]
    (tmp_path / "tasks.json").write_text(json.dumps([*tasks, {"command": ["echo", "short"]}]))
    words = ("group", "submit", "many", "--json-file", str(tmp_path / "tasks.json"))
    with following(stack, tmp_path / "f", "many") as it:
        a, b, c = mitosis_json(stack, *words)["task_ids"]
        wait_until(lambda: b"one 1" in it.out and b"one 2" in it.out, 30, lambda: it.err)
        assert b"half" not in it.out
        gate.touch()
        mitosis_json(stack, "group", "close", "many")
        assert it.ended() == 0
    lines = sorted(it.out.decode().splitlines())
    expected = [
        f"{a}| one 1",
        f"{b}| one 2",
        f"{a}| halfs",
        f"{b}| halfs",
        f"{a}! bad",
        f"{b}! bad",
    ]
    assert lines == sorted([*expected, f"{c}| short"])
    assert it.err.count(": succeeded, exit 0 <==") == 3


def test_run_prints_a_line_of_json_for_each_result_and_the_group(
    stack: Path, tmp_path: Path
) -> None:
    words = ["run", "--json", "sh", "-c", "exit {}", ":::", "0", "3"]
    env = clean_environment(MITOSIS_DATA_DIR=str(stack))
    ended = subprocess.run(
        [*prepared_mitosis(env), *words], env=env, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 1, ended.stderr
    *results, last = [json.loads(line) for line in ended.stdout.splitlines()]
    found = {line["number"]: (line["kind"], line["result"]["exit_code"]) for line in results}
    assert found == {1: ("result", 0), 2: ("result", 3)}
    assert (last["kind"], last["group"]["result"]) == ("end", "tasks_failed")
