"""Ends what was left running on the host: by an earlier process of this manager (protocol P5), or by hooks.

Workers and tasks go without exception. What a *finished* setup hook started and left running (a
daemon the group's tasks need) is part of an environment that is still valid, and stays until the
environment is torn down. Processes are known by the variables that we started them with, so one that has
put them off, or was started by another service, is not found.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

MANAGER = b"MITOSIS_MANAGER_ID="
GROUP = b"MITOSIS_TASK_GROUP_UUID="
OF_WORKERS = b"MITOSIS_WORKER_ENDPOINT="
"""In the environment of a zygote and all below it; not in that of hooks."""
GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL for daemons of hooks."""
LIMIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.02

log = logging.getLogger(__name__)


def kill_leftovers(manager_id: str, prepared: Collection[str] = ()) -> int:
    """SIGKILL every process with our manager id in its environment, until there is none.

    Args:
        manager_id: of this agent.
        prepared: task groups whose environment stands; what their hooks started is spared.

    Returns:
        How many were killed. Those of other users cannot be read, and are not ours.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + LIMIT_SECONDS
    spared = {GROUP + group.encode() for group in prepared}
    while found := list(_marked(MANAGER + manager_id.encode(), spared)):
        if time.monotonic() > deadline:
            log.error("leftovers.not_killed", extra={"pids": found})
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.add(pid)
        time.sleep(_PAUSE_SECONDS)
    if killed:
        log.warning("leftovers.killed", extra={"count": len(killed)})
    return len(killed)


async def end_daemons(manager_id: str, task_group: str) -> int:
    """End what the hooks of a group have left running: SIGTERM, and SIGKILL after :data:`GRACE_SECONDS`.

    Returns:
        How many there were.
    """
    marker, group = MANAGER + manager_id.encode(), GROUP + task_group.encode()
    signalled: set[int] = set()
    begun = time.monotonic()
    while found := await asyncio.to_thread(lambda: list(_daemons(marker, group))):
        waited = time.monotonic() - begun
        if waited > GRACE_SECONDS + LIMIT_SECONDS:
            log.error("daemons.not_ended", extra={"pids": found})
            break
        late = waited > GRACE_SECONDS
        for pid in found if late else set(found) - signalled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            signalled.add(pid)
        await asyncio.sleep(_PAUSE_SECONDS)
    if signalled:
        log.info("daemons.ended", extra={"count": len(signalled), "task_group": task_group})
    return len(signalled)


def _daemons(marker: bytes, group: bytes) -> Iterator[int]:
    """Of this group and not below a worker."""
    for pid, variables in _with_marker(marker):
        if group in variables and not _of_workers(variables):
            yield pid


def _marked(marker: bytes, spared: Collection[bytes]) -> Iterator[int]:
    """Live processes of ours, without daemons of the groups that are spared."""
    for pid, variables in _with_marker(marker):
        if _of_workers(variables) or not any(variable in spared for variable in variables):
            yield pid


def _of_workers(variables: Collection[bytes]) -> bool:
    return any(variable.startswith(OF_WORKERS) for variable in variables)


def _with_marker(marker: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Live processes whose first environment holds the marker, and it; without us and our ancestors."""
    ours = set(_ancestors(os.getpid()))
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in ours:
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker not in variables or _state(entry) in ("Z", "X"):
            continue
        yield int(entry.name), variables


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])


def _state(entry: Path) -> str:
    """One letter. Source: proc_pid_stat(5)."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
