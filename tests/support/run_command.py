"""`mitosis run` in a process of its own, and what a test asks about its group."""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.support.program import clean_environment, prepared_mitosis
from tests.support.waiting import wait_until

NOISE = """
import random, sys
n = int(sys.argv[1])
data = random.Random(n).randbytes(n)
half = n // 2
sys.stdout.buffer.write(data[:half])
sys.stdout.flush()
sys.stderr.buffer.write(data)
sys.stderr.flush()
sys.stdout.buffer.write(data[half:])
"""
"""Writes as many bytes as its argument says to both streams, in pieces."""

SMALL_FILES = (
    "import resource, sys; from mitosis.cli import main; sys.dont_write_bytecode = True;"
    "resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (int(sys.argv.pop(1)),)); main()"
)
"""`mitosis` that writes no file larger than its first argument says."""

SHORT = (
    "from datetime import timedelta; from mitosis.cli import main; from mitosis.cli.run import keeping;"
    "keeping.KEEP = timedelta(seconds=4); main()"
)
"""`mitosis` with seconds instead of hours."""


def run(
    env: Mapping[str, str],
    *words: str,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    open_pipe: bool = False,
) -> "subprocess.CompletedProcess[bytes]":
    """One run to its end; without ``stdin`` it is /dev/null, or a pipe with one line that does not end."""
    with ExitStack() as open_files:
        source = subprocess.DEVNULL
        if open_pipe:
            source, writer = os.pipe()
            open_files.callback(os.close, source)
            open_files.callback(os.close, writer)
            os.write(writer, b"first\n")
        return subprocess.run(
            [*prepared_mitosis(env), "run", "-w", "2", *words],
            env=env,
            cwd=cwd,
            input=stdin,
            stdin=source if stdin is None else None,
            capture_output=True,
            check=False,
            timeout=120,
        )


def running(stack: Path, name: str) -> bool:
    env = clean_environment()
    done = subprocess.run(
        [*prepared_mitosis(env), "group", "show", "--data-dir", str(stack), "--json", name],
        env=env,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0 and (json.loads(done.stdout)["tasks_running"] or 0) > 0


def mitosis_json_wait(stack: Path, name: str) -> None:
    """Wait for the end, whatever it is."""
    env = clean_environment()
    argv = [*prepared_mitosis(env), "group", "wait", "--data-dir", str(stack), name]
    subprocess.run(argv, env=env, capture_output=True, check=False, timeout=90)


def watching(env: Mapping[str, str], name: str, shown: Path) -> "subprocess.Popen[bytes]":
    """`mitosis watch` of a task group, which has shown something in that file."""
    command = [*prepared_mitosis(env), "watch", name]
    with shown.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    wait_until(lambda: shown.stat().st_size, 60)
    return process
