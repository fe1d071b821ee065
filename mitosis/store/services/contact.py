"""Heartbeats and goodbyes of worker services, and their drain."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.errors import MitosisError, Superseded, WorkerNotFound, WorkerNotRegistered
from mitosis.contracts.worker_services import HeartbeatAnswer, HeldTask
from mitosis.store.leases.service_leases import end_leases_of_services, to_stop
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("services/contact.sql")


@dataclass(frozen=True, slots=True)
class _ServiceState:
    worker_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class _Ended:
    service: int


async def record_heartbeat(
    store: Store, worker_uuid: UUID, incarnation: int, held: Sequence[HeldTask] = ()
) -> HeartbeatAnswer:
    """Record a heartbeat of the present process of a worker service. One statement, one more for ``held``.

    Raises:
        WorkerNotFound: there is no such worker service.
        WorkerNotRegistered: its registration is over, or it has none: register again.
        Superseded: a later process has registered.
    """
    parameters = {"worker": worker_uuid, "incarnation": incarnation}
    async with store.database.connection() as connection:
        answer = await fetch_one(connection, HeartbeatAnswer, SQL["heartbeat"], parameters)
        if answer is not None:
            stop = await to_stop(connection, worker_uuid, held)
            return answer.model_copy(update={"stop": stop})
        raise await refusal_of(connection, worker_uuid, incarnation)


async def say_goodbye(store: Store, worker_uuid: UUID, incarnation: int, reason: str) -> None:
    """End the registration of a process in order. Idempotent; without effect for an earlier process.

    What the process still held is ready again, at no charge.

    Raises:
        WorkerNotFound: there is no such worker service.
    """
    parameters = {"worker": worker_uuid, "incarnation": incarnation, "reason": reason}
    async with store.database.transaction() as connection:
        ended = await fetch_one(connection, _Ended, SQL["goodbye"], parameters)
        if ended is not None:
            await end_leases_of_services(
                connection, [ended.service], ReleaseReason.GOODBYE, charge=False
            )
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


async def check_registered(connection: Connection, worker_uuid: UUID, incarnation: int) -> None:
    """Check that this process is the registered one of its worker service.

    Raises:
        WorkerNotFound: there is no such worker service.
        WorkerNotRegistered: its registration is over, or it has none: register again.
        Superseded: a later process has registered.
    """
    parameters = {"worker": worker_uuid, "incarnation": incarnation}
    if await fetch_one(connection, _Ended, SQL["registered"], parameters) is None:
        raise await refusal_of(connection, worker_uuid, incarnation)


async def refusal_of(connection: Connection, worker_uuid: UUID, incarnation: int) -> MitosisError:
    """Return why a call of a process of a worker service is refused that is not the registered one."""
    parameters = {"worker": worker_uuid}
    state = await fetch_one(connection, _ServiceState, SQL["service_state"], parameters)
    if state is None:
        return WorkerNotFound()
    if incarnation < state.incarnation:
        return Superseded(
            "a later process of this worker service has registered", incarnation=state.incarnation
        )
    return WorkerNotRegistered(
        "the registration is over; register again", worker_id=state.worker_id
    )
