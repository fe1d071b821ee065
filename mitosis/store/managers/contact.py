"""Contact and renewals of agents, with the tasks that they run and hold (protocol P3, P4)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from msgspec.structs import replace as with_changes

from mitosis.contracts.errors import NotFound, Superseded
from mitosis.contracts.lifecycle import LeaseState, TaskGroupState
from mitosis.contracts.wire import (
    CancelOrder,
    LeaseNotice,
    LeaseStanding,
    Renewal,
    RenewalAnswer,
    StopOrder,
    TaskAttempt,
)
from mitosis.store.leases.ending import STANDING, lock_group
from mitosis.store.leases.granting import TakenLease, extend_leases
from mitosis.store.managers.release import release_over
from mitosis.store.managers.workers import record_workers
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import notify_watchers
from mitosis.store.store import Store
from mitosis.store.tasks.claimant import with_claimant

SQL = load("managers/contact.sql")
SUPERSEDED = with_claimant(SQL["superseded"])


@dataclass(frozen=True, slots=True)
class _Contact:
    id: int
    incarnation: int
    offline: bool
    report_trouble: str | None
    teardowns: list[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    lease_state: LeaseState
    draining: bool
    """It claims nothing, and ends when it holds no task."""
    group_state: TaskGroupState | None
    """None: the group has been deleted."""
    kill_running: bool
    reason: str | None
    grace_seconds: float
    host_lost_after_seconds: float | None
    stops: list[StopOrder]


@dataclass(frozen=True, slots=True)
class _Held:
    """The row of ``lock_for_return``."""

    group_id: int
    manager_id: int


@dataclass(frozen=True, slots=True)
class _Id:
    id: int


async def record_contact(store: Store, manager_id: UUID, incarnation: int | None = None) -> None:
    """Move ``alive_until`` because the agent called (P4): at most once a second without ``incarnation``.

    Raises:
        NotFound: there is no such manager.
        Superseded: a later process of the agent has said hello (P5).
    """
    if incarnation is None and manager_id in store.contacts:
        return
    manager, _ = await _contact(store, manager_id)
    if incarnation is not None and incarnation < manager.incarnation:
        raise Superseded(incarnation=manager.incarnation)
    store.contacts.put(manager_id, None)


async def renew(store: Store, manager_id: UUID, renewal: Renewal) -> RenewalAnswer:
    """Record contact, started attempts, returned tasks and held ids (P3, P4).

    Raises:
        NotFound: there is no such manager.
        Superseded: a later process of the agent has said hello.
    """
    manager, taken = await _contact(store, manager_id)
    if renewal.incarnation < manager.incarnation:
        raise Superseded(incarnation=manager.incarnation)
    if renewal.report_trouble != manager.report_trouble:
        await _keep_trouble(store, manager.id, renewal.report_trouble)
    if renewal.over is not None:
        await release_over(store, manager_id, renewal.over)
        manager, taken = await _contact(store, manager_id)
    answer = RenewalAnswer(
        lease=_notice(taken, renewal.epoch),
        teardowns=manager.teardowns,
        host_lost_after_seconds=store.host_lost_after.total_seconds(),
    )
    if renewal.epoch is None:
        return with_changes(answer, standing=LeaseStanding.GONE if manager.offline else None)
    recorded = await _record(store, manager_id, renewal.epoch, renewal)
    superseded: list[TaskAttempt] = []
    if renewal.running:
        superseded = await _superseded(store, manager_id, renewal.epoch, renewal.running)
    lease = await _standing(store, manager_id, renewal.epoch)
    if lease is None:
        return with_changes(answer, standing=LeaseStanding.GONE, superseded=superseded)
    standing = STANDING[lease.lease_state]
    return with_changes(
        answer,
        standing=standing,
        order=_order(lease) if _has_order(standing, lease) else None,
        superseded=superseded,
        stops=lease.stops,
        recorded=recorded,
        host_lost_after_seconds=lease.host_lost_after_seconds or answer.host_lost_after_seconds,
    )


async def _record(store: Store, manager_id: UUID, epoch: int, renewal: Renewal) -> list[int]:
    """Record what the renewal says of workers and tasks; return the announced tasks that may start."""
    if renewal.cannot_start is not None or renewal.workers_started:
        await record_workers(store, manager_id, epoch, renewal.cannot_start)
    if renewal.started or renewal.announced or renewal.returned or renewal.held:
        return await _reconcile(store, manager_id, epoch, renewal)
    return []


async def _contact(store: Store, manager_id: UUID) -> tuple[_Contact, TakenLease | None]:
    """Record contact in two statements over one connection: one would break the order of locks."""
    async with store.database.connection() as connection:
        parameters = {
            "manager": manager_id,
            "suspect_after": store.suspect_after.total_seconds(),
        }
        manager = await fetch_one(connection, _Contact, SQL["contact"], parameters)
        if manager is None:
            raise NotFound("no such manager", manager_id=str(manager_id))
        lost_after = store.host_lost_after.total_seconds()
        return manager, await extend_leases(connection, manager.id, lost_after)


async def _keep_trouble(store: Store, manager_number: int, trouble: str | None) -> None:
    parameters = {"manager_number": manager_number, "report_trouble": trouble}
    async with store.database.connection() as connection:
        await connection.execute(SQL["report_trouble"], parameters)


def _notice(taken: TakenLease | None, known_epoch: int | None) -> LeaseNotice | None:
    """Return the manager's lease if the renewal does not name it: the agent may not know of it (P6)."""
    if taken is None or taken.epoch == known_epoch:
        return None
    return LeaseNotice(
        epoch=taken.epoch, task_group_id=taken.task_group_id, standing=STANDING[taken.state]
    )


async def _standing(store: Store, manager_id: UUID, epoch: int) -> _Standing | None:
    """Return the standing of the lease; record that it is busy if it is."""
    async with store.database.connection() as connection:
        parameters = {"manager": manager_id, "epoch": epoch}
        lease = await fetch_one(connection, _Standing, SQL["standing"], parameters)
        if lease is not None and lease.group_state is None:
            await connection.execute(SQL["end_without_group"], parameters)
            return replace(lease, lease_state=LeaseState.ENDED)
        if lease is not None and lease.lease_state is LeaseState.ACTIVE:
            await connection.execute(SQL["mark_busy"], parameters)
            if (
                lease.draining
                and (await connection.execute(SQL["end_drained"], parameters)).rowcount
            ):
                return replace(lease, lease_state=LeaseState.ENDING)
    return lease


async def _superseded(
    store: Store, manager_id: UUID, epoch: int, running: Sequence[TaskAttempt]
) -> list[TaskAttempt]:
    parameters = {"manager": manager_id, "epoch": epoch, **_attempts(running)}
    async with store.database.connection() as connection:
        return await fetch_all(connection, TaskAttempt, SUPERSEDED, parameters)


async def _reconcile(store: Store, manager_id: UUID, epoch: int, renewal: Renewal) -> list[int]:
    """Bring the rows of the epoch in line with what the agent runs and holds.

    Return the announced tasks whose start is recorded.
    """
    recorded: list[int] = []
    async with store.database.transaction() as connection:
        parameters = {"manager": manager_id, "epoch": epoch}
        lease = await fetch_one(connection, _Held, SQL["lock_for_return"], parameters)
        if lease is None:
            return []
        if renewal.returned or renewal.held:
            await _take_back(connection, lease, epoch, renewal)
        # after the group's lock: the lock order puts task rows last
        numbers = {"epoch": epoch, "group_number": lease.group_id}
        if started := [*renewal.started, *renewal.announced]:
            await connection.execute(SQL["started"], {**numbers, **_attempts(started)})
            await notify_watchers(connection, lease.group_id)
        if renewal.announced:
            values = {**numbers, **_attempts(renewal.announced)}
            found = await fetch_all(connection, _Id, SQL["announced"], values)
            recorded = [row.id for row in found]
    return recorded


async def _take_back(connection: Connection, lease: _Held, epoch: int, renewal: Renewal) -> None:
    """Requeue the tasks that the agent returns, and those that it should hold but does not."""
    await lock_group(connection, lease.group_id)
    parameters = {
        "epoch": epoch,
        "group_number": lease.group_id,
        "manager_number": lease.manager_id,
    }
    back = 0
    if renewal.returned:
        values = {**parameters, **_attempts(renewal.returned)}
        back += (await connection.execute(SQL["returned"], values)).rowcount
        await connection.execute(SQL["forget_returned_stops"], values)
    if renewal.held is not None:
        values = {
            **parameters,
            "acked_seq": renewal.held.acked_seq,
            "ids": number_array(renewal.held.task_ids),
        }
        back += (await connection.execute(SQL["not_held"], values)).rowcount
    if back:
        await connection.execute(SQL["notify_returned"], parameters)


def _attempts(items: Sequence[TaskAttempt]) -> dict[str, str]:
    return {
        "ids": number_array(item.task_id for item in items),
        "attempts": number_array(item.attempt for item in items),
    }


def _has_order(standing: LeaseStanding, lease: _Standing) -> bool:
    """Return whether running tasks must end.

    Under a lost lease they may finish, unless the group kills them: then they end there too (P5).
    """
    killed = standing is LeaseStanding.GONE and lease.kill_running
    return killed or standing is LeaseStanding.ENDING


def _order(lease: _Standing) -> CancelOrder:
    return CancelOrder(
        kill=lease.kill_running,
        grace_seconds=lease.grace_seconds,
        reason=lease.reason or f"Task group {lease.group_state or 'deleted'}",
    )
