"""A handler of some milliseconds that writes down when it runs, and that once may do harm."""

import os
import signal
import time
from pathlib import Path

BLOCK_SECONDS = 2.5
"""Longer than an agent waits for the answer of a worker before it withdraws what that one holds."""


def run(folder: str, seconds: float, harm: str = "") -> None:
    """Run for ``seconds``; the first time, do the harm that its name says."""
    _write(folder, "begin")
    if harm and _first_time(folder):
        _do(harm, folder)
    time.sleep(seconds)
    _write(folder, "end")


def _do(harm: str, folder: str) -> None:
    if harm == "kill_worker":
        os.kill(os.getpid(), signal.SIGKILL)
    elif harm == "kill_zygote":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    elif harm == "kill_agent":  # and be over before its worker ends too
        os.kill(int((Path(folder) / "agent.pid").read_text()), signal.SIGKILL)
    elif harm == "overdue":
        time.sleep(60)
    elif harm == "block":  # no bytecode runs, so no message is sent
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(BLOCK_SECONDS)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _first_time(folder: str) -> bool:
    try:
        (Path(folder) / f"harm-{os.environ['MITOSIS_TASK_ID']}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _write(folder: str, what: str) -> None:
    key = f"{os.environ['MITOSIS_TASK_ID']} {os.environ['MITOSIS_TASK_ATTEMPT']}"
    line = f"{time.time()} {key} {os.getpid()} {what}\n"
    descriptor = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)
