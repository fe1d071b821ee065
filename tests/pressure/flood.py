"""A submitter that is faster than the fleet: the queue fills, it is held back, and memory stays as it was."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.http import TaskGroupSpec
from tests.support.admin import admin_client

QUEUE = 500
"""Unfinished tasks that the stack of a flood allows per group."""
ENVIRONMENT = {"MITOSIS_API__MAX_OPEN_TASKS_PER_GROUP": str(QUEUE)}
PART = 250
MARGIN_BYTES = 60_000_000
"""What a process may have grown by: code and caches that are loaded on the way, no tasks."""


OURS = ("python", "temporal")
"""Backends of PostgreSQL share memory that they touch page by page, and tasks are none of us."""


@dataclass(frozen=True, slots=True)
class Flood:
    """What was seen."""

    submitted: int
    waits: int
    grown_bytes: dict[str, int]
    connections: int
    """Most connections to PostgreSQL at once."""


def flood(data_dir: Path, up: psutil.Process, seconds: float) -> Flood:
    """Submit as fast as it goes for so long (and until it was held back), then wait for the end."""
    task = {"command": ["true"], "environment": {"BULK": "x" * 2000}}
    with admin_client(data_dir) as client:
        plan = WorkerAllocationPlan(worker_count=2)
        client.create_group(TaskGroupSpec(name="flood", worker_allocation_plan=plan))
        client.submit("flood", [task] * PART)
        before, ends = sizes(up), time.monotonic() + seconds
        submitted, waits, connections = PART, 0, 0
        while time.monotonic() < ends or waits == 0:
            began = time.monotonic()
            submitted += len(client.submit("flood", [task] * PART))
            waits += time.monotonic() - began > 4
            connections = max(connections, backends(up))
        after = sizes(up)
        client.close_group("flood")
        info = client.wait("flood")
        assert (info.tasks_succeeded, info.tasks_total) == (submitted, submitted), info
    grown = {name: after[name] - size for name, size in before.items() if name in after}
    return Flood(submitted, waits, grown, connections)


def sizes(up: psutil.Process) -> dict[str, int]:
    """Resident bytes by process: our own, the stack's (API and control worker), its agent's and servers'."""
    found = {"submitter": psutil.Process(os.getpid()).memory_info().rss}
    for process in (up, *up.children(recursive=True)):
        if (name := name_of(process)).startswith(OURS):
            with suppress(psutil.NoSuchProcess):
                found[f"{name} {process.pid}"] = process.memory_info().rss
    return found


def backends(up: psutil.Process) -> int:
    return sum(name_of(process) == "postgres" for process in up.children(recursive=True))


def name_of(process: psutil.Process) -> str:
    """Tasks come and go; what has gone has no name."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
