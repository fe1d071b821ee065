"""The ``mitosis`` program as its users run it: in a process of its own, by its command line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import prepared
from tests.support.clusters import begin_with_cluster
from tests.support.prepared import PreparedPopen
from tests.support.waiting import wait_until

MITOSIS = (sys.executable, "-P", "-m", "mitosis.cli")
"""For programs that get signals, have a terminal, or are found by their command line."""


OF_THE_DISPLAY = {"CI", "NO_COLOR", "TERM", "COLUMNS", "LINES"}
"""What we run under must not decide what a program shows."""


def clean_environment(**more: str) -> dict[str, str]:
    """Ours without settings of Mitosis or of Python, and without what tells programs how to show things."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MITOSIS_", "PYTHON"))}
    return {k: v for k, v in kept.items() if k not in OF_THE_DISPLAY} | more


def mitosis(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """One command to its end, which must be good; what it printed.

    Raises:
        AssertionError: with all that it said.
    """
    done = _run(arguments, env)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def refused(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """One command that must end by itself and not well; what it printed."""
    done = _run(arguments, env)
    assert done.returncode > 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def prepared_mitosis(env: Mapping[str, str]) -> Sequence[str]:
    """As :data:`MITOSIS` at a tenth of its CPU time, for commands that are only run to their end."""
    return prepared.caller("mitosis.cli", env)


def _run(
    arguments: tuple[str, ...], env: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    env = clean_environment() if env is None else env
    return subprocess.run(
        [*prepared_mitosis(env), *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def mitosis_json(data_dir: Path, *arguments: str) -> Any:
    """As :func:`mitosis` against the stack of ``data_dir``, with ``--json``."""
    return json.loads(
        mitosis(*arguments[:2], "--data-dir", str(data_dir), "--json", *arguments[2:])
    )


@contextmanager
def running_up(
    data_dir: Path,
    timeout: float = 120.0,
    more: Mapping[str, str] | None = None,
    program: Sequence[str] = (),
    *,
    prepared_agent: bool = False,
    new: bool = False,
) -> Iterator[PreparedPopen]:
    """`mitosis up` on ``data_dir``, ready; killed at the end when it still runs.

    ``more`` is added to its environment; ``program`` is another module and its arguments, which says the
    same when it is up. ``prepared_agent``: for tests that look for no processes below, since a prepared
    agent is not there. ``new``: the folder is new to it, and it makes the cluster itself.
    """
    if not new and not (data_dir / "postgres").exists():
        begin_with_cluster(data_dir)
    log = data_dir.with_name(f"{data_dir.name}.up.log")
    env = clean_environment(**more or {})
    agent = [*(prepared.caller("mitosis.cli", env) if prepared_agent else MITOSIS), "agent"]
    up = ("tests.support.prepared_up", json.dumps(agent), "up", "--data-dir", str(data_dir))
    module, *words = program or up
    with log.open("wb") as output:
        process = PreparedPopen(module, words, env, output.fileno())
    try:
        wait_until(
            lambda: process.poll() is not None or b"Mitosis is up" in log.read_bytes(),
            timeout,
            lambda: log.read_text()[-3000:],
        )
        assert process.poll() is None, log.read_text()[-3000:]
        yield process
    finally:
        process.kill()
        process.wait()
