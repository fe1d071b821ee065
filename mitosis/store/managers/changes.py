"""Renames, retags and deletes hosts."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import AlreadyExists, Conflict
from mitosis.contracts.manager_verbs import ManagerUpdate
from mitosis.store.leases.ending import forget_environments, lock_live_lease, set_offline
from mitosis.store.managers.hello import LockedManager, lock_manager
from mitosis.store.managers.tags import set_tags
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("managers/changes.sql")


@dataclass(frozen=True, slots=True)
class _Id:
    id: int


@dataclass(frozen=True, slots=True)
class _Name:
    name: str


async def update_manager(store: Store, manager_id: UUID, changes: ManagerUpdate) -> None:
    """Change name, tags and labels of a host, as far as they are given.

    Raises:
        NotFound: there is no such manager.
        AlreadyExists: another host of its user groups has the name.
    """
    async with store.database.transaction() as connection:
        if changes.name is not None:
            await connection.execute(SQL["lock_names"])
        manager = await lock_manager(connection, manager_id)
        values = {
            "manager_number": manager.id,
            "name": changes.name,
            "labels": None if changes.labels is None else sorted(changes.labels),
        }
        if changes.name is not None:
            taken = await fetch_one(connection, _Id, SQL["same_name"], values)
            if taken is not None:
                raise AlreadyExists(
                    f"another host of its user groups is called {changes.name}", field="name"
                )
        await connection.execute(SQL["change_manager"], values)
        if changes.tags is not None:
            await set_tags(connection, manager.id, changes.tags)
        await poke(connection, managers=[manager_id], scheduler=True)


async def delete_manager(store: Store, manager_id: UUID, *, force: bool = False) -> None:
    """Delete a host: its token is refused, and no task group lists it. Results still name it.

    Args:
        store: of the host.
        manager_id: of the host.
        force: forget the teardowns of a host that is out of contact, because its machine is gone.

    Raises:
        NotFound: there is no such manager.
        Conflict: it has a lease or something to clean up; names what, and the way out.
    """
    async with store.database.transaction() as connection:
        manager = await lock_manager(connection, manager_id)
        number = {"manager_number": manager.id}
        if await lock_live_lease(connection, manager.id) is not None:
            held = await fetch_one(connection, _Name, SQL["leased_group"], number)
            raise Conflict(
                f"{manager.name} has a lease for {held.name if held else 'a deleted task group'};"
                f" drain it first: mitosis manager drain {manager.name} --wait",
                lease=held.name if held else None,
            )
        await _check_debts(connection, store, manager, force=force)
        await connection.execute(SQL["delete_manager"], number)
        await set_offline(connection, manager.id)
        await poke(connection, managers=[manager_id])
    store.manager_token_versions.clear()


async def _check_debts(
    connection: Connection, store: Store, manager: LockedManager, *, force: bool
) -> None:
    """Check that nothing has to be cleaned up on the host; with ``force`` forget it.

    Raises:
        Conflict: something has to, or the host is in contact and can do it.
    """
    number = {"manager_number": manager.id}
    owed = [row.name for row in await fetch_all(connection, _Name, SQL["owed_groups"], number)]
    if not owed:
        return
    names = ", ".join(owed)
    away = manager.offline or manager.silent_seconds > store.host_lost_after.total_seconds()
    if force and away:
        await forget_environments(connection, manager.id)
        return
    if away:
        way = "start its agent, or if the machine no longer exists: mitosis manager delete --force"
    else:
        way = f"drain it first: mitosis manager drain {manager.name} --wait"
    raise Conflict(f"{manager.name} has to clean up after {names}; {way}", owed=owed)
