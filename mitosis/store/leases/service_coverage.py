"""Reads who executes the tasks of a group of worker services, and which of them none can execute now."""

from collections.abc import Sequence
from dataclasses import dataclass

from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.registry.health import with_health
from mitosis.store.registry.selection import NamedTask, no_workers

SQL = load("leases/service_coverage.sql")
CLAIMABLE = with_health(SQL["claimable"])
SHOWN = 3
"""So many uncovered named tasks are described."""


@dataclass(frozen=True, slots=True)
class Executing:
    """A worker service that executes tasks of the group, and how many."""

    worker_id: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Claimable:
    """A named task that waits, with the usable services that support it, the first one to choose first."""

    group_name: str
    namespace: str
    name: str
    version: str
    worker_ids: list[str]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Who executes and who could."""

    executing: Sequence[Executing]
    claimable: Sequence[Claimable]
    gaps: Sequence[str]
    """One line for each of the first named tasks that no service can execute, with the nearest registered."""


async def read_coverage(connection: Connection, group_number: int) -> Coverage:
    """Read the facts about a group. Two round trips, and two more for each gap."""
    number = {"group_number": group_number}
    executing = await fetch_all(connection, Executing, SQL["executing"], number)
    claimable = await fetch_all(connection, Claimable, CLAIMABLE, number)
    gaps = [one for one in claimable if not one.worker_ids]
    lines = list[str]()
    for one in gaps[:SHOWN]:
        task = NamedTask(one.group_name, one.namespace, one.name, one.version)
        lines.append((await no_workers(connection, task)).message)
    if len(gaps) > SHOWN:
        lines.append(f"{len(gaps) - SHOWN} more named tasks have no worker service")
    return Coverage(executing, claimable, lines)
