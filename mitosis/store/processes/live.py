"""One row for each API and control process that runs now: its version, and what it knows.

Versions run beside each other during an upgrade. What an older process would misread is written only when all
processes that run know it. The row is written every few seconds, removed when the process ends, and by any
other process after it was killed.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import get_args
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from mitosis.build import build_id
from mitosis.concurrency import cancel_and_wait, raise_if_cancelled
from mitosis.contracts.errors import MitosisError, UpgradeInProgress
from mitosis.contracts.http import TaskGroupKind
from mitosis.contracts.processes import LiveProcesses, ProcessInfo, ProcessKind
from mitosis.contracts.request_fields import RequestFields, accepted_fields, common_fields
from mitosis.store.pg.database import Connection
from mitosis.store.pg.revision import REVISION
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.pg.tables import TASK_STATES
from mitosis.store.store import Store
from mitosis.version import __version__

SQL = load("processes/live.sql")
BEAT_SECONDS = 3.0
GONE_AFTER_SECONDS = 30.0
"""A process whose row is older is taken for killed; one that is only slow is back before."""
REMOVE_SECONDS = 2.0
"""How long the end of a process may wait for PostgreSQL."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a version knows that another may not."""

    task_states: tuple[int, ...] = ()
    """Values of ``open_task.state``."""
    group_kinds: tuple[str, ...] = ("managed",)
    """Values of ``task_groups.kind`` that users can give."""
    request_fields: dict[str, list[str]] = field(default_factory=dict)
    """Of the requests of agents."""
    scheduled_runs: bool = False
    """Whether templates of a run may name the time for which a schedule has started it."""
    build: str | None = None
    """Of a control process; None of a version whose control workers are all alike to Temporal."""


KNOWN = Knowledge(
    task_states=TASK_STATES,
    group_kinds=get_args(TaskGroupKind),
    request_fields=accepted_fields(),
    scheduled_runs=True,
)
"""By this version."""


class CommonFields:
    """The fields of requests that every API process accepts that runs, as of the last heartbeat."""

    def __init__(self) -> None:
        self.listed = KNOWN.request_fields

    def update(self, of_each: Sequence[RequestFields]) -> None:
        self.listed = common_fields([KNOWN.request_fields, *of_each])


@dataclass(frozen=True, slots=True)
class _Process:
    kind: ProcessKind
    version: str | None
    host_name: str | None
    pid: int | None
    knows: Knowledge
    started_at: datetime
    silent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The row of this process."""

    kind: ProcessKind
    common: CommonFields | None = None
    id: UUID = field(default_factory=uuid4)

    async def beat(self, store: Store) -> None:
        """Write it, and remove those of killed processes."""
        knows = replace(KNOWN, build=own_build()) if self.kind == "control" else KNOWN
        values = {
            "id": self.id,
            "kind": self.kind,
            "version": __version__,
            "host_name": socket.gethostname(),
            "pid": os.getpid(),
            "knows": Jsonb(asdict(knows)),
        }
        async with store.database.connection() as connection:
            await connection.execute(SQL["beat"], values)
            await connection.execute(SQL["reap"], {"gone_after": GONE_AFTER_SECONDS})
            running = await _live(connection)
        if self.common is not None:
            self.common.update([one.knows.request_fields for one in running if one.kind == "api"])

    async def remove(self, store: Store) -> None:
        async with store.database.connection() as connection:
            await connection.execute(SQL["remove"], {"id": self.id})


@asynccontextmanager
async def recording_process(
    store: Store, kind: ProcessKind, common: CommonFields | None = None
) -> AsyncIterator[None]:
    """Show this process among those that run while the context is open; keep ``common`` up to date.

    Raises:
        DatabaseUnavailable: its row cannot be written.
    """
    row = _Row(kind=kind, common=common)
    await row.beat(store)
    task = asyncio.create_task(_beat_for_ever(store, row), name="process row")
    try:
        yield
    finally:
        await cancel_and_wait(task)
        try:
            async with asyncio.timeout(REMOVE_SECONDS):
                await row.remove(store)
        except (MitosisError, TimeoutError) as error:
            log.warning("process_row.left", extra={"reason": str(error)})


async def live_processes(store: Store) -> LiveProcesses:
    """Return the processes that run now, also those of versions that write no row."""
    async with store.database.connection() as connection:
        found = await _live(connection)
    return LiveProcesses(
        processes=tuple(
            ProcessInfo(
                kind=one.kind,
                version=one.version,
                host_name=one.host_name,
                pid=one.pid,
                started_at=one.started_at,
                silent_seconds=one.silent_seconds,
            )
            for one in found
        )
    )


def own_build() -> str:
    """Return the build of the control worker of this process."""
    return build_id(REVISION)


async def live_builds(store: Store) -> Sequence[str]:
    """Return the build of each control process that runs, the latest start last."""
    async with store.database.connection() as connection:
        found = await _live(connection)
    return [one.knows.build for one in found if one.kind == "control" and one.knows.build]


async def require_task_state(connection: Connection, state: int) -> None:
    """Check that every process that runs knows this value of ``open_task.state``, before a row gets it.

    Raises:
        UpgradeInProgress: names one that does not.
    """
    for one in await _live(connection):
        if state not in one.knows.task_states:
            raise _older(one, "this kind of task")


async def require_group_kind(connection: Connection, kind: TaskGroupKind) -> None:
    """Check that every process that runs knows this kind of task group, before one is created.

    Raises:
        UpgradeInProgress: names one that does not.
    """
    if kind in Knowledge().group_kinds:
        return
    for one in await _live(connection):
        if kind not in one.knows.group_kinds:
            raise _older(one, f"task groups of the kind {kind}")


async def require_scheduled_runs(connection: Connection) -> None:
    """Check that every process that runs can carry on runs of schedules, before one is stored.

    Raises:
        UpgradeInProgress: names one that cannot.
    """
    for one in await _live(connection):
        if not one.knows.scheduled_runs:
            raise _older(one, "runs of schedules")


async def _live(connection: Connection) -> list[_Process]:
    return await fetch_all(connection, _Process, SQL["live"], {"gone_after": GONE_AFTER_SECONDS})


def _older(process: _Process, what: str) -> UpgradeInProgress:
    return UpgradeInProgress(
        f"{_who(process)} does not know {what}: stop it when its successor runs",
        kind=process.kind,
        version=process.version,
        host_name=process.host_name,
        pid=process.pid,
    )


def _who(process: _Process) -> str:
    name = {"api": "the API", "control": "the control worker"}[process.kind]
    of = f"version {process.version}" if process.version else "an earlier version"
    where = f" on {process.host_name}" if process.host_name else ""
    number = f" (process {process.pid})" if process.pid else ""
    return f"{name} of {of}{where}{number}"


async def _beat_for_ever(store: Store, row: _Row) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        raise_if_cancelled()
        try:
            await row.beat(store)
        except MitosisError as error:
            log.warning("process_row.missed", extra={"reason": error.message})
