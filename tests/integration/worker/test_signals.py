"""Ignored signals and masks of a parent (nohup, a background shell) do not reach tasks and hooks."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.worker_host import worker_host

INHERITED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1)
SAMPLES = "tests.support.sample_handlers"


@contextmanager
def inherited_by_children() -> Iterator[None]:
    """Ignore some signals and block all of them while the block runs."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INHERITED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


def dispositions(status: str) -> dict[str, int]:
    """Return the masks of /proc/PID/status by name. Source: proc_pid_status(5).

    Without the two signals that the C library keeps for itself (32 and 33): no program sets them.
    """
    known = bits(*signal.valid_signals())
    lines = (line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    return {name: int(value, 16) & known for name, value in lines if name in ("SigBlk", "SigIgn")}


def bits(*numbers: int) -> int:
    return sum(1 << (number - 1) for number in numbers)


@pytest.mark.parametrize("module", [SAMPLES, "tests.support.threaded_module"])
def test_tasks_start_with_default_signals(tmp_path: Path, module: str) -> None:
    setup = {"handler_modules": (module,), "python_path": (str(ROOT),)}
    with inherited_by_children():
        host = worker_host(tmp_path, **setup)
        running = host.__enter__()
    try:
        running.spawn()
        _, detail = running.run(command=["grep", "Sig", "/proc/self/status"])
        assert dispositions(detail["stdout"]) == {"SigBlk": 0, "SigIgn": 0}
        _, detail = running.run(handler=f"{SAMPLES}:text_of", arguments=["/proc/self/status"])
        found = dispositions(detail["result"])
        assert found == {"SigBlk": 0, "SigIgn": bits(signal.SIGPIPE, signal.SIGXFSZ)}
        zygote = dispositions(Path(f"/proc/{running.zygote.pid}/status").read_text())
        ignored = bits(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
        assert zygote == {"SigBlk": 0, "SigIgn": ignored}
    finally:
        host.__exit__(None, None, None)


HOOK = """
import asyncio, os, signal
from manager_agent.hooks import run_hook
from mitosis.contracts.hook import HookSpec
from mitosis.worker.signals import default_in_children

default_in_children()
hook = HookSpec(command=("grep", "Sig", "/proc/self/status"))
print(asyncio.run(run_hook(hook, {"MITOSIS_HOOK_RUN": "probe-1"})).stdout_tail)
os.kill(os.getpid(), signal.SIGHUP)
print("alive")
"""


def test_hooks_start_with_default_signals_and_the_agent_goes_on_ignoring_them() -> None:
    with inherited_by_children():
        command = [sys.executable, "-c", HOOK]
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    printed, _ = agent.communicate()
    assert dispositions(printed) == {"SigBlk": 0, "SigIgn": 0}
    assert printed.endswith("alive\n")
