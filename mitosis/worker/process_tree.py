"""Finds and kills all descendants of a process, also those that left its group or session.

A process can leave its group and session and can be orphaned, but it cannot leave the tree below a child
subreaper (prctl(2)); the zygote and every worker are one. The tree is frozen before it is killed, so that
no fork escapes the walk. It reads /proc itself: psutil would cost every worker its memory.
"""

import os
import signal
import time
from collections.abc import Collection, Iterable
from typing import NoReturn

_ROUND_SECONDS = 0.002
_LAST_WALK_SECONDS = 2.0


def process_parents() -> dict[int, int]:
    """Return the parent of every process by pid, zombies included. Source: proc_pid_stat(5)."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a hot walk over hundreds of entries
        if name.isdigit() and (parent := _parent(name)) is not None:
            parents[int(name)] = parent
    return parents


def _parent(pid: str) -> int | None:
    fields = stat_fields(pid)
    return int(fields[1]) if fields else None


def pidfd_or_kill(pid: int) -> int:
    """Return a descriptor that becomes readable when a new child ends; without one, kill and reap the child.

    Raises:
        OSError: no descriptor can be opened, and the child is gone.
    """
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def stat_fields(pid: str | int) -> list[bytes]:
    """Return what is known of a process, from its state (field 3) on; empty if it is gone or hidden.

    Source: proc_pid_stat(5). The name before these fields may contain anything.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def below(root: int, parents: dict[int, int], spare: Collection[int] = ()) -> set[int]:
    """Return all descendants of ``root``, without those in ``spare`` and their descendants. Pure."""
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
    """Freeze all descendants of ``root``, then send them SIGKILL. Does not wait for their end.

    Returns:
        The pids that got the signal; empty if there is no descendant.
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
    """Signal each process; return those that got the signal."""
    reached = set()
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        reached.add(pid)
    return reached


def reap_any() -> bool:
    """Reap every child that has ended; return True if no child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


def kill_all_below(within_seconds: float) -> bool:
    """Kill and reap until this process has no descendant; return False if some remain after the time."""
    deadline = time.monotonic() + within_seconds
    while not reap_any():
        kill_below(os.getpid())
        if time.monotonic() > deadline:
            return False
        time.sleep(_ROUND_SECONDS)
    return True


def end_with_all(number: signal.Signals) -> NoReturn:
    """Kill all descendants, then end this process as by the signal, also if it is blocked."""
    kill_all_below(_LAST_WALK_SECONDS)
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # as a shell would
