"""Heartbeats and goodbyes of worker services, their drain, and the end of silent registrations."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import MitosisError, Superseded, WorkerNotFound, WorkerNotRegistered
from mitosis.contracts.worker_services import HeartbeatAnswer
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("registry/contact.sql")
ENDED_AT_ONCE = 100
"""So many registrations are ended in one transaction."""


@dataclass(frozen=True, slots=True)
class _ServiceState:
    worker_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class _Silence:
    ended: int
    next_seconds: float | None


async def record_heartbeat(store: Store, worker_uuid: UUID, incarnation: int) -> HeartbeatAnswer:
    """Record a heartbeat of the present process of a worker service. One statement.

    Raises:
        WorkerNotFound: there is no such worker service.
        WorkerNotRegistered: its registration is over, or it has none: register again.
        Superseded: a later process has registered.
    """
    parameters = {"worker": worker_uuid, "incarnation": incarnation}
    async with store.database.connection() as connection:
        answer = await fetch_one(connection, HeartbeatAnswer, SQL["heartbeat"], parameters)
        if answer is not None:
            return answer
        state = await fetch_one(connection, _ServiceState, SQL["service_state"], parameters)
    raise _refusal(state, incarnation)


async def say_goodbye(store: Store, worker_uuid: UUID, incarnation: int, reason: str) -> None:
    """End the registration of a process in order. Idempotent; without effect for an earlier process.

    Raises:
        WorkerNotFound: there is no such worker service.
    """
    parameters = {"worker": worker_uuid, "incarnation": incarnation, "reason": reason}
    async with store.database.connection() as connection:
        if (await connection.execute(SQL["goodbye"], parameters)).rowcount:
            return
        if await fetch_one(connection, _ServiceState, SQL["service_state"], parameters) is None:
            raise WorkerNotFound


async def drain_worker(store: Store, worker_uuid: UUID, reason: str | None = None) -> None:
    """Give a worker service no tasks from now on, also after it registers again. Idempotent."""
    async with store.database.connection() as connection:
        parameters = {"worker": worker_uuid, "reason": reason}
        await connection.execute(SQL["drain_worker"], parameters)


async def resume_worker(store: Store, worker_uuid: UUID) -> None:
    """End the drain of a worker service. Idempotent."""
    async with store.database.connection() as connection:
        await connection.execute(SQL["resume_worker"], {"worker": worker_uuid})


async def end_silent_registrations(store: Store) -> float | None:
    """End the registrations of services that are silent for too long.

    Returns:
        Seconds until the next one can be over; None if no service is registered.
    """
    parameters = {"most": ENDED_AT_ONCE}
    async with store.database.connection() as connection:
        while True:
            (found,) = await fetch_all(connection, _Silence, SQL["end_silent"], parameters)
            if found.ended < ENDED_AT_ONCE:
                return found.next_seconds


def _refusal(state: _ServiceState | None, incarnation: int) -> MitosisError:
    if state is None:
        return WorkerNotFound()
    if incarnation < state.incarnation:
        return Superseded(
            "a later process of this worker service has registered", incarnation=state.incarnation
        )
    return WorkerNotRegistered(
        "the registration is over; register again", worker_id=state.worker_id
    )
