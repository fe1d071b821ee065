"""`mitosis run` on a whole stack under faults: a full disk, an output that nobody reads, a kill, SIGTERM."""

import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.prepared import python
from tests.support.program import mitosis_json, prepared_mitosis
from tests.support.run_command import SHORT, SMALL_FILES, mitosis_json_wait, running, watching
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
POLL = 0.2
"""Seconds between two programs that ask for the same."""


def test_on_a_full_disk_files_are_whole_or_not_there_and_the_option_is_named(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    def limited(limit: int, *words: str) -> "subprocess.CompletedProcess[bytes]":
        argv = [*python(env), "-c", SMALL_FILES, str(limit), "run", *words]
        return subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, check=False)

    done = limited(0, "--joblog", "log", "true")
    assert done.stderr == b"error: --joblog: cannot write log: File too large\n"
    assert not (tmp_path / "log").exists()
    done = limited(0, "-o", "kept", "echo", "{}", ":::", "a")
    assert done.returncode == 74, done.stderr
    assert b"cannot write the output of tasks: kept/1.out: File too large" in done.stderr
    assert not list((tmp_path / "kept").iterdir())
    done = limited(512, "--joblog", "log", "true", "{}", ":::", *(str(n) * 400 for n in range(4)))
    assert done.returncode == 74, done.stderr
    assert b"Traceback" not in done.stderr
    heading, *lines = (tmp_path / "log").read_text().split("\n")
    assert heading.startswith("Seq\t")
    assert lines.pop() == ""
    assert {line.count("\t") for line in lines} == {8}


def test_when_nobody_reads_the_output_the_run_detaches(env: Mapping[str, str], stack: Path) -> None:
    words = ["run", "-w", "2", "--name", "unread", "--range", "1-200", "printf", "%01999d\\n", "{}"]
    line = f"{shlex.join([*prepared_mitosis(env), *words])} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], env=env, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 130, done.stderr
    assert b"cannot write the output of tasks: Broken pipe" in done.stderr
    assert b"detached" in done.stderr
    assert b"Traceback" not in done.stderr
    assert mitosis_json(stack, "group", "wait", "unread")["result"] == "success"


def test_a_silent_pipe_keeps_its_group_open_and_a_killed_run_does_not(
    env: Mapping[str, str], stack: Path, tmp_path: Path
) -> None:
    def group() -> Any:
        return mitosis_json(stack, "group", "show", "silent")

    argv = [*python(env), "-c", SHORT, "run", "-w", "1", "--name", "silent", "touch", "{}"]
    with subprocess.Popen(
        argv, env=env, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        wait_until((tmp_path / "first").exists, 60)
        wait_until(lambda: group()["auto_close_timeout"] > 8, 60, interval=POLL)
        assert group()["state"] == "open"
        watch = watching(env, "silent", tmp_path / "shown")
        process.stdin.write(b"second\n")
        process.stdin.flush()
        wait_until((tmp_path / "second").exists, 60)
        wait_until(lambda: group()["auto_close_timeout"] < 8, 60, interval=POLL)
        process.kill()
    assert watch.wait(60) == 0
    said = (tmp_path / "shown").read_bytes()
    assert re.search(rb"mitosis group close silent, or \d+s after the last sub", said), said
    assert b"2 ok, 0 failed" in said


def test_sigterm_detaches_or_cancels_as_told(env: Mapping[str, str], stack: Path) -> None:
    for wish, state in (("detach", "closed"), ("cancel", "cancelled")):
        argv = [*prepared_mitosis(env), "run", "-w", "1", "--name", f"term-{wish}"]
        argv += ["--on-interrupt", wish, "sleep", "300"]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(argv, env=env, stdin=nothing, stderr=nothing) as process:
            wait_until(lambda w=wish: running(stack, f"term-{w}"), 60, interval=POLL)  # type: ignore[misc]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 130
        group = mitosis_json(stack, "group", "show", f"term-{wish}")
        assert (group["state"], group["auto_close_timeout"]) == (state, 24 * 3600)
        if state == "closed":  # the one host is needed for the next
            mitosis_json(stack, "group", "cancel", f"term-{wish}")
        mitosis_json_wait(stack, f"term-{wish}")
