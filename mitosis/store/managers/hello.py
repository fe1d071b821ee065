"""The first and the last word of an agent process (protocol P5): hello and goodbye.

Lock order in both: the manager, its live lease, the lease's group, task rows, environments.
"""

from uuid import UUID

from psycopg.rows import DictRow

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.errors import ManagerIdInUse, NotFound, Superseded
from mitosis.contracts.http import HeldLease, Hello, HelloAnswer
from mitosis.contracts.temporal_names import host_task_queue
from mitosis.store.leases.ending import SQL as LEASES
from mitosis.store.leases.ending import LockedLease, end_lease, lock_group, lock_live_lease
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.statements import load

SQL = load("managers/managers.sql")


async def say_hello(
    connection: Connection, manager_id: UUID, hello: Hello, host_lost_after: float, namespace: str
) -> HelloAnswer:
    """See :meth:`mitosis.store.managers.contact.ManagerStore.hello`; in the caller's transaction."""
    manager = await lock_manager(connection, manager_id)
    lease = await lock_live_lease(connection, manager["id"])
    incarnation = _incarnation_after(manager, lease, hello, host_lost_after)
    if incarnation > manager["incarnation"]:
        await _begin_process(connection, manager, lease, hello, incarnation, host_lost_after)
    await connection.execute(SQL["set_online"], {"manager_number": manager["id"]})
    await connection.execute(
        LEASES["stay_alive"],
        {"manager_number": manager["id"], "host_lost_after": host_lost_after},
    )
    await poke(connection, managers=[manager_id], scheduler=True)
    return await _answer(connection, manager, incarnation, host_lost_after, namespace)


async def say_goodbye(
    connection: Connection, manager_id: UUID, epoch: int | None, incarnation: int | None
) -> None:
    """See :meth:`mitosis.store.managers.contact.ManagerStore.goodbye`; in the caller's transaction."""
    manager = await lock_manager(connection, manager_id)
    if incarnation is not None and incarnation < manager["incarnation"]:
        return  # its successor has said hello
    lease = await lock_live_lease(connection, manager["id"])
    if epoch is not None and lease is not None and lease.epoch != epoch:
        return  # a late goodbye must not end the epoch of a successor
    if lease is not None:
        await end_lease(connection, lease, ReleaseReason.GOODBYE)
    await connection.execute(LEASES["set_offline"], {"manager_number": manager["id"]})
    await poke(connection, managers=[manager_id])


async def lock_manager(connection: Connection, manager_id: UUID) -> DictRow:
    """Lock the manager's row.

    Raises:
        NotFound: no such manager.
    """
    cursor = await connection.execute(SQL["lock_manager"], {"manager": manager_id})
    row = await cursor.fetchone()
    if row is None:
        raise NotFound("no such manager", manager_id=str(manager_id))
    return row


def _incarnation_after(
    manager: DictRow, lease: LockedLease | None, hello: Hello, host_lost_after: float
) -> int:
    """The incarnation in force after this hello; the stored one means the same process again.

    Raises:
        Superseded, ManagerIdInUse: this process must not run.
    """
    stored: int = manager["incarnation"]
    elsewhere = manager["machine_id"] not in (None, hello.machine_id)
    if elsewhere and hello.take_over:
        return max(stored + 1, hello.incarnation)
    if elsewhere and _in_contact(manager, lease, host_lost_after):
        raise ManagerIdInUse(
            "another machine that is still in contact uses this manager id; stop it, or take over",
            host_name=manager.get("host_name"),
        )
    if hello.incarnation < stored or (elsewhere and hello.incarnation == stored):
        if hello.take_over:
            return stored + 1
        raise Superseded(incarnation=stored)
    return hello.incarnation


def _in_contact(manager: DictRow, lease: LockedLease | None, host_lost_after: float) -> bool:
    if lease is not None and lease.alive_in_seconds is not None and lease.alive_in_seconds > 0:
        return True
    return not manager["offline"] and manager["silent_seconds"] < host_lost_after


async def _begin_process(
    connection: Connection,
    manager: DictRow,
    lease: LockedLease | None,
    hello: Hello,
    incarnation: int,
    host_lost_after: float,
) -> None:
    """End what the process before held; an ACTIVE lease of a group that goes on gets a new epoch."""
    elsewhere = manager["machine_id"] not in (None, hello.machine_id)
    rebooted = elsewhere or manager["boot_id"] not in (None, hello.boot_id)
    number = {"manager_number": manager["id"]}
    if lease is not None:
        await end_lease(connection, lease, ReleaseReason.NEW_INCARNATION, charge=rebooted)
        group = await lock_group(connection, lease.group_number)
        goes_on = group["state"] in ("open", "closed") and not group["discarding"]
        if lease.state == "active" and goes_on:
            await connection.execute(
                LEASES["insert_active_lease"],
                {
                    **number,
                    "group_number": lease.group_number,
                    "host_lost_after": host_lost_after,
                },
            )
    if rebooted or hello.take_over:
        cursor = await connection.execute(
            LEASES["forget_environments"], {**number, "degraded": elsewhere or hello.take_over}
        )
        await poke(connection, groups=[row["uuid"] for row in await cursor.fetchall()])
    await connection.execute(
        SQL["save_hello"],
        {
            **number,
            **hello.model_dump(exclude={"incarnation", "cores", "take_over"}),
            "cores": list(hello.cores),
            "incarnation": incarnation,
        },
    )


async def _answer(
    connection: Connection,
    manager: DictRow,
    incarnation: int,
    host_lost_after: float,
    namespace: str,
) -> HelloAnswer:
    number = {"manager_number": manager["id"]}
    held = await (await connection.execute(SQL["held"], number)).fetchone()
    owed = await (await connection.execute(SQL["owed"], number)).fetchall()
    lease = None if held is None else HeldLease.model_validate(held)
    own = None if held is None else held["host_lost_after_seconds"]
    return HelloAnswer(
        manager_id=manager["uuid"],
        name=manager["name"],
        incarnation=incarnation,
        temporal_namespace=namespace,
        temporal_task_queue=host_task_queue(manager["uuid"]),
        lease=lease,
        owed=tuple(row["uuid"] for row in owed),
        host_lost_after_seconds=own or host_lost_after,
    )
