"""`mitosis run` in a process of its own, and what a test asks about its group."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.program import MITOSIS, clean_environment


def run(
    env: Mapping[str, str], *words: str, cwd: Path | None = None, stdin: bytes | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """One run to its end; without ``stdin`` it is /dev/null."""
    return subprocess.run(
        [*MITOSIS, "run", "-w", "2", *words],
        env=env,
        cwd=cwd,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        check=False,
        timeout=120,
    )


def running(stack: Path, name: str) -> bool:
    done = subprocess.run(
        [*MITOSIS, "group", "show", "--data-dir", str(stack), "--json", name],
        env=clean_environment(),
        capture_output=True,
        check=False,
    )
    return done.returncode == 0 and (json.loads(done.stdout)["tasks_running"] or 0) > 0


def mitosis_json_wait(stack: Path, name: str) -> None:
    """Wait for the end, whatever it is."""
    argv = [*MITOSIS, "group", "wait", "--data-dir", str(stack), name]
    subprocess.run(argv, env=clean_environment(), capture_output=True, check=False, timeout=90)
