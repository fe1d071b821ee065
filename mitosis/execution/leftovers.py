"""Ends processes left on the host by an earlier process of this manager (protocol P5), a zygote or hooks.

Workers and tasks are killed without exception. Daemons that a *finished* setup hook has started belong
to an environment that is still valid, and stay until it is torn down. Processes are recognised by the
MITOSIS_* variables they inherited; one that cleared its environment, or was started by another service,
is missed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from uuid import uuid4

import psutil

from mitosis.execution import hook_guard

Variable = tuple[str, str]
"""Name and value."""

MANAGER = "MITOSIS_MANAGER_ID"
GROUP = "MITOSIS_TASK_GROUP_UUID"
OF_WORKERS = "MITOSIS_WORKER_ENDPOINT"
"""In the environment of a zygote and its descendants, not of hooks."""
HOOK_RUN = "MITOSIS_HOOK_RUN"
"""In the environment of a hook and its descendants: see :func:`hook_run`."""
OF_PROBE = "probe-"
"""The value begins so for a probe, which leaves nothing that tasks need."""
GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""
LIMIT_SECONDS = 10.0

log = logging.getLogger(__name__)


def hook_run(kind: str, manager_id: str, task_group: str) -> str:
    """Return a value of MITOSIS_HOOK_RUN for one run of a hook; it says of what, if nothing else is kept.

    Args:
        kind: ``setup``, ``teardown`` or ``probe``.
        manager_id: of this agent.
        task_group: its UUID.
    """
    return f"{kind}-{manager_id}-{task_group}-{uuid4().hex}"


def kill_leftovers(manager_id: str, prepared: Collection[str] = ()) -> int:
    """Send SIGKILL to every process with this manager id in its environment, until there is none.

    Args:
        manager_id: of this agent.
        prepared: task groups with a valid environment; daemons of their setup hooks are spared.

    Returns:
        How many were killed.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + LIMIT_SECONDS
    while found := list(_leftovers(manager_id, prepared)):
        if time.monotonic() > deadline:
            log.error("leftovers.not_killed", extra={"pids": found})
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.add(pid)
        time.sleep(hook_guard.PAUSE_SECONDS)
    if killed:
        log.warning("leftovers.killed", extra={"count": len(killed)})
    return len(killed)


async def end_daemons(manager_id: str, task_group: str) -> int:
    """End the daemons of a group's hooks: SIGTERM, and SIGKILL after :data:`GRACE_SECONDS`.

    Returns:
        How many there were.
    """
    ended = await _end(lambda: _daemons(manager_id, task_group))
    if ended:
        log.info("daemons.ended", extra={"count": ended, "task_group": task_group})
    return ended


async def end_hook_run(run: str) -> int:
    """End what one run of a hook has left running, as :func:`end_daemons`.

    Args:
        run: the value of MITOSIS_HOOK_RUN.

    Returns:
        How many there were.
    """
    ended = await _end(lambda: (pid for pid, _ in _processes_with((HOOK_RUN, run))))
    if ended:
        log.info("daemons.ended", extra={"count": ended, "hook_run": run})
    return ended


async def end_workers(manager_id: str) -> int:
    """End the workers and tasks of a zygote that was killed, as :func:`end_daemons`.

    The kernel has sent them SIGTERM; code in C that never returns to Python does not act on it.

    Returns:
        How many there were.
    """
    ended = await _end(lambda: _workers(manager_id))
    if ended:
        log.warning("workers.outlived_their_zygote", extra={"count": ended})
    return ended


async def _end(find: Callable[[], Iterator[int]]) -> int:
    signalled: set[int] = set()
    begun, looks_without = time.monotonic(), 0
    while looks_without < hook_guard.LOOKS_WITHOUT:
        found = await asyncio.to_thread(lambda: list(find()))
        looks_without = 0 if found else looks_without + 1
        waited = time.monotonic() - begun
        if found and waited > GRACE_SECONDS + LIMIT_SECONDS:
            log.error("processes.not_ended", extra={"pids": found})
            break
        late = waited > GRACE_SECONDS
        for pid in found if late else set(found) - signalled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            signalled.add(pid)
        await asyncio.sleep(hook_guard.PAUSE_SECONDS)
    return len(signalled)


def _workers(manager_id: str) -> Iterator[int]:
    """Yield live workers of this manager, and what is below them."""
    for pid, variables in _processes_with((MANAGER, manager_id)):
        if OF_WORKERS in variables:
            yield pid


def _daemons(manager_id: str, task_group: str) -> Iterator[int]:
    """Yield live processes of this group that are not below a worker."""
    for pid, variables in _processes_of(manager_id):
        if _is_of(variables, task_group) and OF_WORKERS not in variables:
            yield pid


def _leftovers(manager_id: str, spared: Collection[str]) -> Iterator[int]:
    """Yield live processes of this manager, but not daemons of the groups that are spared."""
    for pid, variables in _processes_of(manager_id):
        of_setup = OF_WORKERS not in variables and not _of_probe(variables)
        if not (of_setup and any(_is_of(variables, group) for group in spared)):
            yield pid


def _is_of(variables: Mapping[str, str], task_group: str) -> bool:
    return variables.get(GROUP) == task_group or f"-{task_group}-" in variables.get(HOOK_RUN, "")


def _of_probe(variables: Mapping[str, str]) -> bool:
    return variables.get(HOOK_RUN, "").startswith(OF_PROBE)


def _processes_of(manager_id: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the live processes of a manager, also those that have kept only MITOSIS_HOOK_RUN."""
    yield from _processes_with((MANAGER, manager_id), os.fsencode(f"-{manager_id}-"))


def _processes_with(
    variable: Variable, of_hook: bytes | None = None
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the live processes that were started with this variable, and their environments.

    Leaves out this process, its ancestors, and processes of other users, which cannot be read.

    Args:
        variable: name and value.
        of_hook: or with this in the value of MITOSIS_HOOK_RUN.
    """
    me = psutil.Process()
    own = {me.pid, *(process.pid for process in me.parents())}
    entry, name = os.fsencode("=".join(variable)), os.fsencode(f"{HOOK_RUN}=")
    for pid in psutil.pids():
        if pid in own:
            continue
        entries = hook_guard.environment(pid)
        if entry in entries or (
            of_hook and any(of_hook in one for one in entries if one.startswith(name))
        ):
            yield pid, dict(_variable(one) for one in entries if b"=" in one)


def _variable(entry: bytes) -> Variable:
    name, _, value = os.fsdecode(entry).partition("=")
    return name, value
