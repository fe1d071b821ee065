"""Deletes task groups (protocol P8): gone for everyone in one transaction, its rows in chunks.

The group leaves ``task_groups`` and ``group_live`` at once, and with them every list, count, quota and
name; ``deleted_groups`` is the durable state of the rest. The control worker deletes tasks and results
chunk by chunk, and continues where it stopped. What a host still owes for the group (kill, release,
teardown) stays in its own rows, ``leases`` and ``environments``, which refer to no group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from mitosis.contracts.control import Cancel
from mitosis.contracts.errors import Conflict
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.store.groups.endings import cancel_locked, notify_group
from mitosis.store.groups.removal import remove_settled
from mitosis.store.leases.ending import lock_group_and_leases
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("groups/deletion.sql")

STEPS: Sequence[LiteralString] = (
    SQL["delete_failures"],
    SQL["delete_results"],
    SQL["delete_tasks"],
    SQL["delete_submissions"],
    SQL["delete_retries"],
    SQL["delete_parents"],
)


@dataclass(frozen=True, slots=True)
class _LeftOver:
    uuid: UUID


@dataclass(frozen=True, slots=True)
class _Unfinished:
    group_id: int
    step: int
    position: int


@dataclass(frozen=True, slots=True)
class _Reached:
    position: int | None


async def delete_group(store: Store, task_group_id: UUID, forced: Cancel | None = None) -> bool:
    """Delete a settled group; the control worker deletes its tasks afterwards. Return whether it is gone.

    With ``forced`` any other group is cancelled as it says, and deleted in the transaction that settles it,
    when its hosts are clean. So it is deleted even if every process is killed in between.

    Raises:
        NotFound: there is no such group.
        Conflict: it is not settled, and not to be deleted by force.
    """
    async with store.database.transaction() as connection:
        group = await lock_group_and_leases(connection, task_group_id)
        if await remove_settled(connection, group.number):
            return True
        if forced is None:
            raise Conflict(
                f"the task group is {group.state} and not settled; wait until it is, or have it cancelled"
                " and deleted: mitosis group delete --force",
                state=group.state.value,
            )
        await connection.execute(SQL["mark_for_deletion"], {"group_number": group.number})
        if group.state is not TaskGroupState.COMPLETE:
            await cancel_locked(connection, group, forced)
        await notify_group(connection, group.number)
    return False


async def delete_chunk(store: Store, limit: int) -> bool:
    """Delete up to ``limit`` rows of a deleted group; return whether there may be more to do.

    Any number of processes may call it at once.
    """
    async with store.database.in_index_order() as connection:
        group = await fetch_one(connection, _Unfinished, SQL["take"], {})
        if group is None:
            left = await fetch_one(connection, _LeftOver, SQL["left_over"], {})
            if left is None:
                return False
            locked = await lock_group_and_leases(connection, left.uuid)
            return await remove_settled(connection, locked.number)
        number = {"group_number": group.group_id}
        chunk = {**number, "position": group.position, "limit": limit}
        reached = await fetch_one(connection, _Reached, STEPS[group.step], chunk)
        if reached is None or reached.position is None:
            following = {"step": group.step + 1, "position": 0}
        else:
            following = {"step": group.step, "position": reached.position}
        finished = following["step"] == len(STEPS)
        await connection.execute(SQL["advance"], {**number, **following, "finished": finished})
    return True
