"""Managers (hosts): registration, contact, leases; and the port of ManagerWorkflow.

Hello and goodbye are in ``hello.py``, environments in ``environments.py``.
"""

from collections.abc import Sequence
from typing import Any, LiteralString
from uuid import UUID

from psycopg.rows import DictRow

from mitosis.contracts.control import (
    ManagerView,
    ReleaseAnswer,
    ReleaseReason,
    ReleaseRequest,
    ReleaseStatus,
)
from mitosis.contracts.errors import LeaseLost, NotFound, Superseded
from mitosis.contracts.http import (
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGrant,
    Hello,
    HelloAnswer,
    LeaseGrant,
    ManagerInfo,
    ManagerTaskGroup,
    Page,
    RegisterManager,
)
from mitosis.contracts.temporal_names import NAMESPACE
from mitosis.contracts.wire import CancelOrder, LeaseStanding, Renewal, RenewalAnswer, TaskAttempt
from mitosis.store.leases.ending import SQL as LEASES
from mitosis.store.leases.ending import (
    STANDING,
    end_lease,
    lock_group,
    lock_lease,
    lock_live_lease,
    lose_manager,
)
from mitosis.store.managers import environments, views
from mitosis.store.managers.api_liveness import no_api_alive
from mitosis.store.managers.hello import lock_manager, say_goodbye, say_hello
from mitosis.store.managers.registration import register
from mitosis.store.managers.state_facts import with_state_facts
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import tell_watchers
from mitosis.store.store import Store

SQL = load("managers/managers.sql")
TASKS = load("tasks/tasks.sql")


class ManagerStore:
    """All access to managers. Implements ``activities.managers.ManagerPort``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database
        self._host_lost_after = store.host_lost_after.total_seconds()

    async def register(self, spec: RegisterManager, user_id: UUID) -> tuple[UUID, int]:
        """A new manager, OFFLINE until its agent says hello: ``(manager id, token version)``.

        Raises:
            NotFound: no such user group.
            PermissionDenied: the user has no such role there.
            InvalidRequest: ``groups`` has a role that does not exist.
        """
        async with self._database.transaction() as connection:
            return await register(connection, spec, user_id)

    async def token_version(self, manager_id: UUID) -> int | None:
        """The version a valid token of this manager carries; None = no such manager. Cached for 5 s."""

        async def read() -> int | None:
            row = await self._one(SQL["token_version"], {"manager": manager_id})
            return None if row is None else row["token_version"]

        return await self._store.manager_token_versions.get(manager_id, read)

    async def get(self, manager_id: UUID) -> ManagerInfo:
        """One manager with its derived state, lease and environments.

        Raises:
            NotFound: no such manager.
        """
        return await views.one(self._database, manager_id, self._host_lost_after)

    async def list(
        self, viewer_id: UUID, *, after: str | None = None, limit: int = 100
    ) -> Page[ManagerInfo]:
        """Managers of the user's groups (an admin sees all), by name. ``limit`` at most 500."""
        return await views.page(self._database, viewer_id, after, limit, self._host_lost_after)

    async def group_ids(self, manager_id: UUID) -> Sequence[UUID]:
        """The user groups the manager belongs to: who may read a user group may see it.

        Raises:
            NotFound: no such manager.
        """
        async with self._database.connection() as connection:
            cursor = await connection.execute(SQL["group_ids"], {"manager": manager_id})
            rows = await cursor.fetchall()
        if not rows:
            raise NotFound("no such manager", manager_id=str(manager_id))
        return [row["uuid"] for row in rows if row["uuid"] is not None]

    # --- calls of its agent -------------------------------------------------------------------------

    async def hello(
        self, manager_id: UUID, hello: Hello, *, namespace: str = NAMESPACE
    ) -> HelloAnswer:
        """A process of the agent begins (protocol P5). Idempotent for the same incarnation.

        Raises:
            NotFound: no such manager.
            Superseded: a later process has said hello.
            ManagerIdInUse: another machine that is still in contact has this id.
        """
        async with self._database.transaction() as connection:
            return await say_hello(connection, manager_id, hello, self._host_lost_after, namespace)

    async def goodbye(
        self, manager_id: UUID, epoch: int | None, incarnation: int | None = None
    ) -> None:
        """The agent ends in order: its lease is released, the manager OFFLINE. Again is success."""
        async with self._database.transaction() as connection:
            await say_goodbye(connection, manager_id, epoch, incarnation)

    async def contact(self, manager_id: UUID, incarnation: int | None = None) -> None:
        """Any authenticated call of the agent: moves ``alive_until``, at most once a second (P4).

        Raises:
            Superseded: ``incarnation`` is an earlier one: this process has no say any more (P5).
        """
        if incarnation is not None:
            manager = await self._contact(manager_id)
            if incarnation < manager["incarnation"]:
                raise Superseded(incarnation=manager["incarnation"])
        elif manager_id in self._store.contacts:
            return
        else:
            await self._contact(manager_id)
        self._store.contacts.put(manager_id, None)

    async def renew(self, manager_id: UUID, renewal: Renewal) -> RenewalAnswer:
        """Contact, started attempts, returned tasks, held ids (P3, P4).

        Raises:
            NotFound: no such manager.
            Superseded: the incarnation is an earlier one.
        """
        manager = await self._contact(manager_id)
        if renewal.incarnation < manager["incarnation"]:
            raise Superseded(incarnation=manager["incarnation"])
        if renewal.epoch is None:
            return RenewalAnswer(
                standing=LeaseStanding.GONE if manager["offline"] else None,
                host_lost_after_seconds=self._host_lost_after,
            )
        if renewal.started or renewal.returned or renewal.held:
            await self._reconcile(manager_id, renewal.epoch, renewal)
        parameters = {"manager": manager_id, "epoch": renewal.epoch}
        row = await self._one(TASKS["standing"], parameters)
        if row is not None and row["lease_state"] == "active":
            async with self._database.connection() as connection:
                await connection.execute(SQL["mark_busy"], {"epoch": renewal.epoch})
        if row is None:
            return RenewalAnswer(
                standing=LeaseStanding.GONE, host_lost_after_seconds=self._host_lost_after
            )
        standing = STANDING[row["lease_state"]]
        return RenewalAnswer(
            standing=standing,
            order=_order(row) if _has_order(standing, row) else None,
            host_lost_after_seconds=row["host_lost_after_seconds"] or self._host_lost_after,
        )

    async def take(self, manager_id: UUID, epoch: int) -> LeaseGrant:
        """OFFERED → ACTIVE; ACTIVE already is success.

        Raises:
            LeaseLost: the offer was withdrawn, is ending or is not this manager's.
        """
        parameters = self._lease_parameters(manager_id, epoch)
        async with self._database.transaction() as connection:
            lease = await lock_lease(connection, manager_id, epoch)
            if lease is None or lease.state not in ("offered", "active"):
                raise LeaseLost(epoch=epoch)
            await connection.execute(LEASES["take"], parameters)
            await tell_watchers(connection, lease.group_number)
            return await _grant(connection, parameters)

    async def grant(self, manager_id: UUID, epoch: int) -> LeaseGrant:
        """What the agent needs to run an ACTIVE or ENDING lease.

        Raises:
            LeaseLost: there is no such lease any more.
        """
        async with self._database.connection() as connection:
            return await _grant(connection, self._lease_parameters(manager_id, epoch))

    async def task_group(self, manager_id: UUID) -> ManagerTaskGroup | None:
        """The group of the lease that the manager holds or is offered; None = there is no lease."""
        live = await self._one(LEASES["live_epoch"], {"manager": manager_id})
        if live is None:
            return None
        row = await self._one(LEASES["grant"], self._lease_parameters(manager_id, live["epoch"]))
        if row is None or row["lease_state"] == "ended":
            return None
        return ManagerTaskGroup.model_validate(row)

    async def change_environment(
        self, manager_id: UUID, task_group_id: UUID, change: EnvironmentChange
    ) -> EnvironmentAnswer:
        """A compare-and-set by ``lifecycle.ENVIRONMENT``, with the hook's report (P9).

        The state after the event already is success (the same report again).

        Raises:
            NotFound: no such group or environment.
            LeaseLost: preparing, prepared or setup_failed without the ACTIVE lease it names.
            InvalidTransition: the state, or a live lease, does not allow it.
        """
        async with self._database.transaction() as connection:
            state = await environments.change(connection, manager_id, task_group_id, change)
        return EnvironmentAnswer(state=state)

    async def environment(self, manager_id: UUID, task_group_id: UUID) -> EnvironmentGrant:
        """What the agent needs to clean up.

        Raises:
            NotFound: no such environment, or it is gone.
        """
        async with self._database.connection() as connection:
            return await environments.grant(connection, manager_id, task_group_id)

    # --- the port of ManagerWorkflow ----------------------------------------------------------------

    async def observe(self, manager_id: UUID) -> ManagerView:
        """The manager, its live lease and its environments as they are now."""
        parameters = {"manager": manager_id, "host_lost_after": self._host_lost_after}
        row = await self._one(with_state_facts(SQL["observe"]), parameters)
        if row is None:
            return ManagerView(manager_id=manager_id, exists=False)
        return views.control_view(row)

    async def release(self, request: ReleaseRequest) -> ReleaseAnswer:
        """End an epoch and requeue what it held (protocol P1, P4)."""
        async with self._database.transaction() as connection:
            if request.epoch is None:
                return await self._lose_without_lease(connection, request.manager_id)
            lease = await lock_lease(connection, request.manager_id, request.epoch)
            if lease is None or lease.state == "ended":
                return ReleaseAnswer(status=ReleaseStatus.ALREADY_ENDED)
            # An offer has no clock: it is only withdrawn, the host may be in contact.
            lost = request.reason is ReleaseReason.LOST and lease.state != "offered"
            if lost and ((lease.alive_in_seconds or 0.0) > 0 or await no_api_alive(connection)):
                return ReleaseAnswer(
                    status=ReleaseStatus.ALIVE, alive_in_seconds=lease.alive_in_seconds
                )
            if request.reason is ReleaseReason.UNREACHABLE and lease.state != "offered":
                # Taken after all, a moment ago: only its clock or its host may end it now.
                return ReleaseAnswer(
                    status=ReleaseStatus.ALIVE, alive_in_seconds=lease.alive_in_seconds
                )
            requeued = await end_lease(connection, lease, request.reason, charge=lost)
            if lost:
                await lose_manager(connection, lease.manager_number)
        return ReleaseAnswer(status=ReleaseStatus.RELEASED, requeued=requeued)

    # --- inside --------------------------------------------------------------------------------------

    async def _contact(self, manager_id: UUID) -> DictRow:
        """Two statements, for the order of locks, over one connection."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(SQL["contact"], {"manager": manager_id})
            row = await cursor.fetchone()
            if row is None:
                raise NotFound("no such manager", manager_id=str(manager_id))
            parameters = {"manager_number": row["id"], "host_lost_after": self._host_lost_after}
            await connection.execute(LEASES["stay_alive"], parameters)
        return row

    async def _reconcile(self, manager_id: UUID, epoch: int, renewal: Renewal) -> None:
        """Bring the rows of the epoch in line with what the agent says it runs and holds."""
        parameters: dict[str, Any] = {"manager": manager_id, "epoch": epoch}
        async with self._database.transaction() as connection:
            cursor = await connection.execute(SQL["lock_for_return"], parameters)
            lease = await cursor.fetchone()
            if lease is None:
                return
            parameters["group_number"] = lease["group_id"]
            if renewal.returned or renewal.held:
                await self._take_back(connection, parameters, renewal)
            if renewal.started:  # after the group's lock, if that is taken: rows come last
                values = {**parameters, **_attempts(renewal.started)}
                await connection.execute(SQL["started"], values)
                await tell_watchers(connection, lease["group_id"])

    async def _take_back(
        self, connection: Connection, parameters: dict[str, Any], renewal: Renewal
    ) -> None:
        await lock_group(connection, parameters["group_number"])
        back = 0
        if renewal.returned:
            values = {**parameters, **_attempts(renewal.returned)}
            back += (await connection.execute(SQL["returned"], values)).rowcount
        if renewal.held is not None:
            values = {
                **parameters,
                "acked_seq": renewal.held.acked_seq,
                "ids": number_array(renewal.held.task_ids),
            }
            back += (await connection.execute(SQL["not_held"], values)).rowcount
        if back:
            await connection.execute(SQL["tell_returned"], parameters)

    async def _lose_without_lease(self, connection: Connection, manager_id: UUID) -> ReleaseAnswer:
        """A silent host that holds only environments: it becomes OFFLINE, they become owed.

        An agent that has said goodbye has as long to come back to them as one that is silent.
        """
        manager = await lock_manager(connection, manager_id)
        if await lock_live_lease(connection, manager["id"]) is not None:
            return ReleaseAnswer(status=ReleaseStatus.ALIVE, alive_in_seconds=0.0)
        left = self._host_lost_after - manager["silent_seconds"]
        if left > 0 or await no_api_alive(connection):
            return ReleaseAnswer(status=ReleaseStatus.ALIVE, alive_in_seconds=left)
        await lose_manager(connection, manager["id"])
        return ReleaseAnswer(status=ReleaseStatus.RELEASED)

    def _lease_parameters(self, manager_id: UUID, epoch: int) -> dict[str, Any]:
        return {
            "manager": manager_id,
            "epoch": epoch,
            "host_lost_after": self._host_lost_after,
        }

    async def _one(self, statement: LiteralString, parameters: dict[str, Any]) -> DictRow | None:
        async with self._database.connection() as connection:
            return await (await connection.execute(statement, parameters)).fetchone()


async def _grant(connection: Connection, parameters: dict[str, Any]) -> LeaseGrant:
    row = await (await connection.execute(LEASES["grant"], parameters)).fetchone()
    if row is None or row["lease_state"] not in ("active", "ending"):
        raise LeaseLost(epoch=parameters["epoch"])
    return LeaseGrant.model_validate(row)


def _attempts(items: Sequence[TaskAttempt]) -> dict[str, str]:
    return {
        "ids": number_array(item.task_id for item in items),
        "attempts": number_array(item.attempt for item in items),
    }


def _has_order(standing: LeaseStanding, row: DictRow) -> bool:
    """A lost lease alone lets running tasks finish; a group that kills them does so there too (P5)."""
    killed = standing is LeaseStanding.GONE and bool(row["kill_running"])
    return killed or standing is LeaseStanding.ENDING


def _order(row: DictRow) -> CancelOrder:
    """What the agent is to do with running tasks under a lease that is ending, or lost to a kill."""
    return CancelOrder(
        kill=row["kill_running"],
        grace_seconds=row["grace_seconds"],
        reason=row["reason"] or f"Task group {row['group_state']}",
    )
