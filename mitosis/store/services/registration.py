"""Registers worker services: upserts the service, its named tasks, then its registration (S004-28).

Lock order: the service, named tasks in the order of their keys, its associations, its registration, its
leases.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.accounts import RANK, Role, User
from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.errors import (
    AlreadyExists,
    InvalidRequest,
    PermissionDenied,
    Superseded,
    Unauthenticated,
    WorkerIdInUse,
    WorkerNotFound,
)
from mitosis.contracts.worker_services import RegisterWorker, SupportedTask
from mitosis.store.leases.service_leases import end_leases_of_services
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.users.accounts import find_account
from mitosis.store.users.granted_roles import granted_roles

SQL = load("services/registration.sql")


@dataclass(frozen=True, slots=True)
class NewRegistration:
    """A registration that is in force."""

    worker_uuid: UUID
    token_version: int
    registration_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class _Service:
    id: int
    uuid: UUID
    worker_id: str
    incarnation: int
    machine_id: str | None
    token_version: int

    def is_elsewhere(self, spec: RegisterWorker) -> bool:
        """Return whether the call comes from another machine than the one before it."""
        known = self.machine_id is not None and spec.machine_id is not None
        return known and self.machine_id != spec.machine_id


@dataclass(frozen=True, slots=True)
class _Current:
    id: int
    incarnation: int
    in_contact: bool


@dataclass(frozen=True, slots=True)
class _Roles:
    role: Role
    held: Role | None


@dataclass(frozen=True, slots=True)
class _Group:
    user_group_id: int


@dataclass(frozen=True, slots=True)
class _Id:
    id: int


@dataclass(frozen=True, slots=True)
class _Version:
    token_version: int


async def register_worker(store: Store, spec: RegisterWorker, user_id: UUID) -> NewRegistration:
    """Register a process of a worker service for a user; create the service at its first registration.

    Raises:
        AlreadyExists: the worker id belongs to a service of user groups that the user is not in.
        PermissionDenied: the user does not have the roles of the service.
        NotFound, InvalidRequest: as for :func:`~mitosis.store.users.granted_roles.granted_roles`.
        Superseded: a later process has registered.
        WorkerIdInUse: another machine that is still in contact uses the id.
    """
    async with store.database.transaction() as connection:
        user = await find_account(connection, user_id)
        if user is None:
            raise Unauthenticated("the user of the token is not active", reason="token_invalid")
        service = await _lock(connection, spec.worker_id)
        is_new = service is None
        if service is None:
            parameters = {"worker_id": spec.worker_id, "user": user_id}
            inserted = await connection.execute(SQL["insert_service"], parameters)
            is_new = inserted.rowcount == 1
            service = await _lock(connection, spec.worker_id)
        if service is None:
            raise WorkerNotFound(worker_id=spec.worker_id)
        if not is_new:
            await _check_user(connection, user, service)
        if is_new or spec.groups:
            await _save_roles(connection, user, service, spec)
        return await _register(connection, service, spec)


async def register_again(store: Store, spec: RegisterWorker, worker_uuid: UUID) -> NewRegistration:
    """Register a process of a worker service with the service's own token; its roles stay.

    Raises:
        PermissionDenied: it names another worker id, or user groups.
        Unauthenticated: the service was deleted a moment ago; a user can register it again.
        Superseded, WorkerIdInUse: as :func:`register_worker`.
    """
    if spec.groups:
        raise PermissionDenied(
            "only a user can change the user groups of a worker service", field="groups"
        )
    async with store.database.transaction() as connection:
        service = await _lock(connection, spec.worker_id)
        if service is None and await _is_deleted(connection, worker_uuid):
            raise Unauthenticated(
                "there is no worker service of this token", reason="token_invalid"
            )
        if service is None or service.uuid != worker_uuid:
            raise PermissionDenied("the token belongs to another worker id", field="worker_id")
        return await _register(connection, service, spec)


async def worker_token_version(store: Store, worker_uuid: UUID) -> int | None:
    """Return the version that valid tokens of this worker service carry; None if there is none.

    Cached for a few seconds.
    """

    async def read() -> int | None:
        async with store.database.connection() as connection:
            parameters = {"worker": worker_uuid}
            row = await fetch_one(connection, _Version, SQL["worker_token_version"], parameters)
        return None if row is None else row.token_version

    return await store.worker_token_versions.get(
        worker_uuid, read, keep=lambda version: version is not None
    )


async def _is_deleted(connection: Connection, worker_uuid: UUID) -> bool:
    parameters = {"worker": worker_uuid}
    return await fetch_one(connection, _Version, SQL["worker_token_version"], parameters) is None


async def _lock(connection: Connection, worker_id: str) -> _Service | None:
    return await fetch_one(connection, _Service, SQL["lock_service"], {"worker_id": worker_id})


async def _check_user(connection: Connection, user: User, service: _Service) -> None:
    """Check that the user has every role that the service has: the answer has its token."""
    if user.is_admin:
        return
    parameters = {"service": service.id, "user": user.user_id}
    roles = await fetch_all(connection, _Roles, SQL["roles_of_both"], parameters)
    if not any(one.held for one in roles):
        raise AlreadyExists("this worker id is taken; choose another one", field="worker_id")
    if any(one.held is None or RANK[one.held] < RANK[one.role] for one in roles):
        raise PermissionDenied(
            "this needs the roles of the worker service in all of its user groups",
            field="worker_id",
        )


async def _save_roles(
    connection: Connection, user: User, service: _Service, spec: RegisterWorker
) -> None:
    granted = await granted_roles(connection, user, spec.groups)
    parameters = {
        "service": service.id,
        "group_numbers": [one.group_number for one in granted],
        "roles": [one.role for one in granted],
    }
    await connection.execute(SQL["remove_roles"], parameters)
    await connection.execute(SQL["save_roles"], parameters)


async def _register(
    connection: Connection, service: _Service, spec: RegisterWorker
) -> NewRegistration:
    number = {"service": service.id}
    current = await fetch_one(connection, _Current, SQL["current"], number)
    incarnation = _incarnation_after(service, current, spec)
    await _update_service(connection, service, spec, incarnation)
    await _declare_tasks(connection, service, spec.supported_tasks)
    details = spec.connection_info.model_dump(
        mode="json", exclude={"connection_type"}, exclude_none=True
    )
    values = {
        **number,
        "incarnation": incarnation,
        "connection_type": spec.connection_info.connection_type,
        "connection_details": json.dumps(details),
        "silence_seconds": spec.silence_seconds,
    }
    repeated = current is not None and current.in_contact and current.incarnation == incarnation
    if not repeated:
        await connection.execute(SQL["end_current"], number)
        await end_leases_of_services(
            connection,
            [service.id],
            ReleaseReason.NEW_INCARNATION,
            charge=True,
            unreported=spec.unreported,
        )
        await poke(connection, scheduler=True)  # its timer ends registrations that are silent
    statement = SQL["repeat_registration"] if repeated else SQL["insert_registration"]
    registration = await fetch_one(connection, _Id, statement, values)
    if registration is None:
        raise WorkerNotFound(worker_id=service.worker_id)
    return NewRegistration(service.uuid, service.token_version, registration.id, incarnation)


def _incarnation_after(service: _Service, current: _Current | None, spec: RegisterWorker) -> int:
    """Return the incarnation after this call. The stored one is a repeated call of the same process.

    Raises:
        Superseded, WorkerIdInUse: this process must not run.
    """
    stored, elsewhere = service.incarnation, service.is_elsewhere(spec)
    if elsewhere and current is not None and current.in_contact and not spec.take_over:
        raise WorkerIdInUse(
            "another machine that is still in contact uses this worker id; stop it, or take over",
            worker_id=service.worker_id,
        )
    if spec.incarnation is None:
        return stored + 1
    if spec.incarnation < stored or (elsewhere and spec.incarnation == stored):
        if spec.take_over:
            return stored + 1
        raise Superseded(
            "a later process of this worker service has registered", incarnation=stored
        )
    return spec.incarnation


async def _update_service(
    connection: Connection, service: _Service, spec: RegisterWorker, incarnation: int
) -> None:
    values = {
        "service": service.id,
        "metadata": json.dumps(spec.metadata),
        "tags": sorted(spec.tags),
        "labels": sorted(spec.labels),
        "slots": spec.slots,
        "silence_seconds": spec.silence_seconds,
        "incarnation": incarnation,
        "machine_id": spec.machine_id,
    }
    await connection.execute(SQL["update_service"], values)


async def _declare_tasks(
    connection: Connection, service: _Service, tasks: Sequence[SupportedTask]
) -> None:
    """Make these the named tasks that the service supports, in each user group that it serves."""
    served = await fetch_all(connection, _Group, SQL["served_groups"], {"service": service.id})
    if tasks and not served:
        raise InvalidRequest(
            "a worker service needs the role write in a user group", field="groups"
        )
    values = {
        "service": service.id,
        "groups": [one.user_group_id for one in served],
        "namespaces": [one.namespace for one in tasks],
        "names": [one.name for one in tasks],
        "versions": [one.version for one in tasks],
        "configurations": [json.dumps(one.configuration) for one in tasks],
        "priorities": [one.priority for one in tasks],
        "max_concurrent": [one.max_concurrent for one in tasks],
    }
    if tasks:
        await connection.execute(SQL["save_named_tasks"], values)
        await connection.execute(SQL["save_associations"], values)
    await connection.execute(SQL["withdraw_associations"], values)
