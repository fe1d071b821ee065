"""Drains a host, and takes it into service again.

A drained host finishes the tasks that it has claimed and takes no new ones; *now* means that those which
have not started go back at once. Then its lease ends, and it tears down every environment, so that it can be
taken away. It is offered nothing until it is resumed.
"""

from uuid import UUID

from mitosis.contracts.control import ReleaseReason
from mitosis.contracts.lifecycle import LeaseState
from mitosis.store.leases.ending import end_lease, lock_live_lease
from mitosis.store.managers.hello import lock_manager
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("managers/draining.sql")


async def drain_manager(
    store: Store, manager_id: UUID, *, now: bool = False, reason: str | None = None
) -> None:
    """Drain a host; a second call may add ``now``. Idempotent.

    Raises:
        NotFound: there is no such manager.
    """
    async with store.database.transaction() as connection:
        manager = await lock_manager(connection, manager_id)
        lease = await lock_live_lease(connection, manager.id)
        number = {"manager_number": manager.id}
        await connection.execute(SQL["drain"], {**number, "reason": reason})
        if lease is not None and lease.state is LeaseState.OFFERED:
            await end_lease(connection, lease, ReleaseReason.DRAINED, workflow=False)
        await connection.execute(SQL["drain_lease"], {**number, "now": now})
        await poke(connection, managers=[manager_id], scheduler=True)


async def resume_manager(store: Store, manager_id: UUID) -> None:
    """Take a drained host into service again; a lease that has not begun to end goes on. Idempotent.

    Raises:
        NotFound: there is no such manager.
    """
    async with store.database.transaction() as connection:
        manager = await lock_manager(connection, manager_id)
        await lock_live_lease(connection, manager.id)
        number = {"manager_number": manager.id}
        await connection.execute(SQL["resume"], number)
        await connection.execute(SQL["resume_lease"], number)
        await poke(connection, managers=[manager_id], scheduler=True)
