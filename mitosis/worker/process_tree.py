"""Everything below this process: found in /proc and killed, whatever it did to get away.

A process can leave its group and its session and can be orphaned, but not leave the tree below a
child subreaper (prctl(2)): the zygote and every worker are one. Freezing the whole tree before
killing it stops a fork from outrunning the walk.
"""

import os
import signal
import time
from collections.abc import Collection, Iterable

_ROUND_SECONDS = 0.002


def process_parents() -> dict[int, int]:
    """Parent by pid of every process, also of zombies: they are not gone. Source: proc_pid_stat(5)."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a hot walk over hundreds of entries
        if name.isdigit() and (parent := _parent(name)) is not None:
            parents[int(name)] = parent
    return parents


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def below(root: int, parents: dict[int, int], spare: Collection[int] = ()) -> set[int]:
    """All descendants of ``root``, but not those in ``spare`` nor what is below them. Pure."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    queue = [root]
    while queue:
        new = [p for p in children.get(queue.pop(), ()) if p not in spare and p not in found]
        found.update(new)
        queue.extend(new)
    return found


def kill_below(root: int, spare: Collection[int] = (), *, root_too: bool = False) -> set[int]:
    """Freeze, then SIGKILL all descendants of ``root``; they may take a moment to be gone.

    Returns:
        The pids that got the signal; empty when nothing is left.
    """
    found: set[int] = set()
    while True:
        tree = below(root, process_parents(), spare)
        if root_too:
            tree.add(root)
        if not (new := tree - found):
            break
        send(new, signal.SIGSTOP)
        found |= new
    return send(found, signal.SIGKILL)


def send(pids: Iterable[int], number: signal.Signals) -> set[int]:
    """Signal each; those that are gone, or that we may not signal, are left out of the result."""
    reached = set()
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        reached.add(pid)
    return reached


def reap_any() -> bool:
    """Reap every child that has ended. True: no child is left at all."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


def kill_all_below(within_seconds: float) -> bool:
    """Kill and reap until this process has no descendant. False: some would not die in time."""
    deadline = time.monotonic() + within_seconds
    while not reap_any():
        kill_below(os.getpid())
        if time.monotonic() > deadline:
            return False
        time.sleep(_ROUND_SECONDS)
    return True
