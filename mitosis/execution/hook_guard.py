"""Kills what a hook has started when the agent dies: a program that runs beside each hook.

Owns no hook: the agent starts it before the hook and kills it when the hook has ended, and what must end
with it. Its standard input is a pipe whose other end only the agent has, so the end of the file is the death
of the agent. It finds processes by an entry of their environment, which all descendants of the hook inherit
and no other process has: also daemons in sessions of their own, whose parent has ended. It misses what
:mod:`mitosis.execution.leftovers` misses. That sweep of the next agent finds what is left if this process
was killed too. The agent makes the same looks when it stops a hook (:mod:`manager_agent.hooks`).

Runs as ``python -I -S hook_guard.py NAME=value`` and imports next to nothing, as each hook pays for it.
"""

import os
import sys
import time

LIMIT_SECONDS = 10.0
LOOKS_WITHOUT = 2
"""So many looks in a row find nothing when all is killed: one may miss a process that calls exec."""
PAUSE_SECONDS = 0.02
"""Between two looks."""
_LINKS_OF_ONE_THREAD = 3
"""Of /proc/PID/task: itself, its parent and one for each thread. Source: proc_pid_task(5)."""


def main() -> None:
    while os.read(0, 1):
        pass
    _kill_all(os.fsencode(sys.argv[1]))


def _kill_all(entry: bytes) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    looks_without = 0
    while looks_without < LOOKS_WITHOUT and time.monotonic() < deadline:
        looks_without = 0 if kill_found(entry) else looks_without + 1
        time.sleep(PAUSE_SECONDS)


def kill_found(entry: bytes) -> bool:
    """Look once, and send SIGKILL to each process with this entry; return whether there was one."""
    import signal  # here: it takes half as long as all the rest, and few hooks lose their agent

    found = _with(entry)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended, or is another user's
            continue
    return bool(found)


def _with(entry: bytes) -> list[int]:
    """Return the processes with this entry in their environment, as far as it can be read; no zombies."""
    names = os.listdir("/proc")  # noqa: PTH208 - pathlib takes longer to import than all the rest
    return [int(name) for name in names if name.isdigit() and entry in environment(name)]


def environment(pid: int | str) -> list[bytes]:
    """Return the entries of a live process that can be read; one lives whose first thread has ended."""
    folder = f"/proc/{pid}"
    try:
        entries = _entries(folder)
        if entries or os.stat(f"{folder}/task").st_nlink <= _LINKS_OF_ONE_THREAD:  # noqa: PTH116 - as above
            return entries
        threads = os.listdir(f"{folder}/task")  # noqa: PTH208 - as above
        return _entries(f"{folder}/task/{threads[-1]}")
    except OSError:  # it has ended
        return []


def _entries(folder: str) -> list[bytes]:
    """Return the environment of a process or thread; that of one that has ended is empty, or root's."""
    try:
        with open(f"{folder}/environ", "rb") as file:  # noqa: PTH123 - half as long as pathlib
            text = file.read()
    except (ProcessLookupError, PermissionError):
        return []
    return text.split(b"\0") if text else []


if __name__ == "__main__":
    main()
