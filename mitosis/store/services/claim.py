"""Claims of worker services: what is claimed for them and they do not know, then new tasks (protocol P10).

A claim that finds nothing waits without a connection, until a task that the service supports is ready.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from msgspec import Raw

from mitosis.contracts.ids import task_uuid
from mitosis.contracts.outcome import LOST_ALONE
from mitosis.contracts.service_tasks import ClaimNamedTasks, ClaimNamedTasksAnswer, NamedTaskAttempt
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.registry.health import with_health
from mitosis.store.services.contact import refusal_of
from mitosis.store.store import Store

SQL = load("services/claim.sql")
CANDIDATES = SQL["candidates"].replace("$better_waits$", with_health(SQL["better_waits"]))
WANTED = SQL["wanted"].replace("$candidates$", CANDIDATES)
TAKE = SQL["take"].replace("$candidates$", CANDIDATES)
LOCKED_SESSION = SQL["session"] + "\n" + SQL["locked"]
PREFERENCE_SECONDS = 1.0
"""So long a task is kept for a better service that waits, unless its task group says otherwise."""
SPARE = 100
"""So many more tasks are read than there is room for, because others claim at the same time."""
PAIRS = 1000
"""So many pairs of a named task and a task group are considered."""
CONTENDED_SECONDS = 0.2
"""A claim that others were faster than looks again after so long."""
WAIT_MARGIN_SECONDS = 1.0
"""A waiting claim counts so much longer: the process repeats it."""


@dataclass(frozen=True, slots=True)
class _Session:
    service: int
    worker_id: str
    incarnation: int
    slots: int
    draining: bool
    registration: int
    current: bool


@dataclass(frozen=True, slots=True)
class _Claimed:
    """An attempt that is claimed by the service."""

    group: int
    id: int
    attempt: int
    named_task: int
    lost_count: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    groups: list[int]
    look_again_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Lease:
    epoch: int
    group: int


@dataclass(frozen=True, slots=True)
class _Supported:
    named_task: int
    priority: int


@dataclass(frozen=True, slots=True)
class _Details:
    """A row of ``answer``."""

    group_id: int
    task_id: int
    attempt: int
    lost_count: int
    task_group_id: UUID
    task_group_name: str
    namespace: str
    name: str
    version: str
    spec: str
    configuration: str
    configuration_version: int
    stop: bool
    checkpoint: str | None


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look found: the answer, and when another may find more without a notification."""

    session: _Session
    tasks: Sequence[NamedTaskAttempt] = ()
    look_again_in_seconds: float | None = None

    @property
    def is_final(self) -> bool:
        return bool(self.tasks) or self.session.draining

    def answer(self) -> ClaimNamedTasksAnswer:
        return ClaimNamedTasksAnswer(tasks=tuple(self.tasks), draining=self.session.draining)


async def claim_named_tasks(
    store: Store, worker_uuid: UUID, request: ClaimNamedTasks
) -> ClaimNamedTasksAnswer:
    """Return attempts for a process of a worker service; wait up to ``wait_seconds`` for the first.

    Raises:
        WorkerNotFound: there is no such worker service.
        WorkerNotRegistered: its registration is over, or it has none: register again.
        Superseded: a later process has registered.
    """
    first = await _look(store, worker_uuid, request)
    if first.is_final or request.wait_seconds <= 0 or store.wake is None:
        return first.answer()
    session = first.session

    async def look() -> _Look:
        return await _look(store, worker_uuid, request)

    async def arm() -> None:
        async with store.database.connection() as connection:
            parameters = {
                "registration": session.registration,
                "seconds": request.wait_seconds + WAIT_MARGIN_SECONDS,
            }
            await connection.execute(SQL["wait"], parameters)

    with store.wake.task_waiter(await _priorities(store, session)) as waiter:
        last = await look_until(
            waiter,
            lambda found: found.is_final,
            look,
            seconds=request.wait_seconds,
            arm=arm,
            again=lambda found: found.look_again_in_seconds,
        )
    return last.answer()


async def _priorities(store: Store, session: _Session) -> Mapping[int, int]:
    """Return the named tasks that the service supports, each with its priority."""
    async with store.database.connection() as connection:
        parameters = {"service": session.service}
        rows = await fetch_all(connection, _Supported, SQL["supported"], parameters)
    return {row.named_task: row.priority for row in rows}


async def _look(store: Store, worker_uuid: UUID, request: ClaimNamedTasks) -> _Look:
    """Look without a lock first: most looks of a service that waits find nothing."""
    async with store.database.connection() as connection:
        session = await _session(connection, SQL["session"], worker_uuid, request.incarnation)
        claimed = await _held(connection, worker_uuid)
        wanted = await _wanted(connection, session, claimed, request)
    if not wanted.groups and not _unknown(claimed, request):
        return _Look(session, look_again_in_seconds=wanted.look_again_in_seconds)
    async with store.database.transaction() as connection:
        session = await _session(connection, LOCKED_SESSION, worker_uuid, request.incarnation)
        claimed = await _held(connection, worker_uuid)
        given = _unknown(claimed, request)[: request.max_tasks]
        given += await _take(connection, worker_uuid, session, claimed, request, wanted.groups)
        tasks = await _answer(connection, session, given)
        if tasks:
            registration = {"registration": session.registration}
            await connection.execute(SQL["stop_waiting"], registration)
    if wanted.groups and not tasks:  # other services have locked or claimed it since
        return _Look(session, look_again_in_seconds=CONTENDED_SECONDS)
    return _Look(session, tasks, wanted.look_again_in_seconds)


async def _session(
    connection: Connection, statement: LiteralString, worker_uuid: UUID, incarnation: int
) -> _Session:
    session = await fetch_one(connection, _Session, statement, {"worker": worker_uuid})
    if session is None or not session.current or session.incarnation != incarnation:
        raise await refusal_of(connection, worker_uuid, incarnation)
    return session


async def _held(connection: Connection, worker_uuid: UUID) -> list[_Claimed]:
    return await fetch_all(connection, _Claimed, SQL["held"], {"worker": worker_uuid})


def _unknown(claimed: Sequence[_Claimed], request: ClaimNamedTasks) -> list[_Claimed]:
    """Return what is claimed for the process and it does not hold: an answer was lost."""
    held = {(one.task_id, one.attempt) for one in request.held}
    return [one for one in claimed if (task_uuid(one.group, one.id), one.attempt) not in held]


def _parameters(
    session: _Session, claimed: Sequence[_Claimed], request: ClaimNamedTasks
) -> dict[str, object]:
    """Return the parameters of ``candidates``."""
    counts = Counter(one.named_task for one in claimed)
    free = session.slots - max(len(claimed), len(request.held))
    room = min(request.max_tasks - len(_unknown(claimed, request)), free)
    if session.draining or any(one.lost_count >= LOST_ALONE for one in claimed):
        room = 0  # nothing runs beside a task that runs alone
    return {
        "service": session.service,
        "room": max(room, 0),
        "held_tasks": number_array(counts),
        "held_counts": number_array(counts.values()),
        "holds": len(claimed),
        "preference": PREFERENCE_SECONDS,
        "alone_at": LOST_ALONE,
        "spare": SPARE,
        "pairs": PAIRS,
    }


async def _wanted(
    connection: Connection,
    session: _Session,
    claimed: Sequence[_Claimed],
    request: ClaimNamedTasks,
) -> _Wanted:
    """Return the task groups in which there is something for the service now."""
    parameters = _parameters(session, claimed, request)
    found = None
    if parameters["room"]:
        found = await fetch_one(connection, _Wanted, WANTED, parameters)
    return found or _Wanted([], None)


async def _take(
    connection: Connection,
    worker_uuid: UUID,
    session: _Session,
    claimed: Sequence[_Claimed],
    request: ClaimNamedTasks,
    groups: Sequence[int],
) -> list[_Claimed]:
    """Claim new tasks in these groups; the caller holds the registration."""
    parameters = _parameters(session, claimed, request)
    if not groups or not parameters["room"]:
        return []
    leases = await _leases(connection, worker_uuid, groups)
    if not leases:
        return []
    values = {
        **parameters,
        "groups": number_array(one.group for one in leases),
        "epochs": number_array(one.epoch for one in leases),
    }
    return await fetch_all(connection, _Claimed, TAKE, values)


async def _leases(connection: Connection, worker_uuid: UUID, groups: Sequence[int]) -> list[_Lease]:
    """Return the active leases of the service in these groups, held until the commit; make missing ones."""
    kept = await fetch_all(
        connection,
        _Lease,
        SQL["keep_leases"],
        {"worker": worker_uuid, "groups": number_array(groups)},
    )
    missing = set(groups) - {one.group for one in kept}
    if not missing:
        return kept
    values = {"worker": worker_uuid, "groups": number_array(sorted(missing))}
    return kept + await fetch_all(connection, _Lease, SQL["make_leases"], values)


async def _answer(
    connection: Connection, session: _Session, given: Sequence[_Claimed]
) -> list[NamedTaskAttempt]:
    if not given:
        return []
    values = {
        "service": session.service,
        "group_numbers": number_array(one.group for one in given),
        "ids": number_array(one.id for one in given),
        "attempts": number_array(one.attempt for one in given),
    }
    rows = await fetch_all(connection, _Details, SQL["answer"], values)
    return [
        NamedTaskAttempt(
            task_id=task_uuid(row.group_id, row.task_id),
            attempt=row.attempt,
            task_group_id=row.task_group_id,
            task_group_name=row.task_group_name,
            namespace=row.namespace,
            name=row.name,
            version=row.version,
            spec=Raw(row.spec.encode()),
            configuration=Raw(row.configuration.encode()),
            configuration_version=row.configuration_version,
            alone=row.lost_count >= LOST_ALONE,
            stop=row.stop,
            checkpoint=None if row.checkpoint is None else json.loads(row.checkpoint),
        )
        for row in rows
    ]
