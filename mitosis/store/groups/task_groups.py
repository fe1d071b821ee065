"""Task groups: create, look, change; and the port of TaskGroupWorkflow.

The edges of their life are in ``endings.py``, what is shown in ``group_views.py``.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Literal
from uuid import UUID

from psycopg.errors import UniqueViolation

from mitosis.contracts.control import DiscardAnswer, GroupView, VerbRequest
from mitosis.contracts.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    PermissionDenied,
)
from mitosis.contracts.following import GroupEvent
from mitosis.contracts.http import (
    CancelStats,
    ManagerInfo,
    Page,
    RefreshedManagers,
    TaskGroupInfo,
    TaskGroupSpec,
    TaskGroupUpdate,
)
from mitosis.contracts.lifecycle import TASK_GROUP
from mitosis.store.groups import endings, group_specs, group_views
from mitosis.store.groups.events import group_events
from mitosis.store.groups.group_filter import GroupFilter
from mitosis.store.managers.views import some_managers
from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store

__all__ = ["GroupFilter", "TaskGroupStore", "Until"]

SQL = load("groups/task_groups.sql")
DELETE_CHUNK = 10_000
LOOK_AGAIN_SECONDS = 0.05
"""Between two looks of one waiter, however often the group changes."""

Until = Literal["changed", "complete", "settled"]


class TaskGroupStore:
    """All access to task groups. Implements ``activities.task_groups.TaskGroupPort``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database
        self._wake = store.wake

    async def create(self, spec: TaskGroupSpec, user_id: UUID) -> TaskGroupInfo:
        """A new OPEN group, its pokes with it (its workflow starts by the outbox).

        The caller has checked that the user may write to ``spec.group_name``.

        Raises:
            NotFound: no such user group or manager.
            AlreadyExists: the name is taken in that user group.
            InvalidRequest: the plan cannot hold on any host (more exclusive workers than cores listed),
                or on none of those that work for the user group now.
        """
        group_specs.check_plan(spec)
        try:
            async with self._database.transaction() as connection:
                row = await (
                    await connection.execute(SQL["create"], group_specs.row(spec, user_id))
                ).fetchone()
                if row is None:
                    raise NotFound("no such user group", field="group_name")
                await group_specs.check_hosts(connection, row["id"], spec)
                for manager_id in spec.manager_ids:
                    await self._name(connection, row["uuid"], manager_id, user_id)
        except UniqueViolation as error:
            raise AlreadyExists(
                f"the user group has a task group called {spec.name}", field="name"
            ) from error
        return await self.get(row["uuid"])

    async def resolve(self, reference: str) -> UUID:
        """The id behind a UUID or ``group/name``.

        Raises:
            NotFound: no such group.
        """
        group_name, slash, name = reference.partition("/")
        if not slash:
            try:
                return UUID(reference)
            except ValueError:
                raise NotFound(
                    f"{reference!r} is neither an id nor group/name of a task group"
                ) from None
        async with self._database.connection() as connection:
            cursor = await connection.execute(
                SQL["resolve"], {"group_name": group_name, "name": name}
            )
            row = await cursor.fetchone()
        if row is None:
            raise NotFound(f"no such task group: {reference}")
        found: UUID = row["uuid"]
        return found

    async def get(self, task_group_id: UUID) -> TaskGroupInfo:
        """Everything about one group.

        Raises:
            NotFound: no such group.
        """
        return (await group_views.one(self._store, task_group_id)).info

    async def cancel_stats(self, task_group_id: UUID) -> CancelStats:
        """What has become of the unfinished tasks of a cancelled group so far."""
        return await group_views.cancel_stats(self._database, task_group_id)

    async def wait(self, task_group_id: UUID, until: Until, timeout: timedelta) -> TaskGroupInfo:
        """:meth:`get` as soon as the group changed, became terminal or settled; after ``timeout`` as it is.

        Holds no connection while it waits. ``complete`` means COMPLETE or CANCELLED.

        Raises:
            NotFound: no such group.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        first = await group_views.one(self._store, task_group_id)
        if _reached(until, first.info) or self._wake is None:
            return first.info
        with self._wake.waiter(first.number, Topic.CHANGED) as waiter:
            while True:
                if until == "changed":
                    await self._watch(first.number)
                now = (await group_views.one(self._store, task_group_id)).info
                changed = until == "changed" and _essence(now) != _essence(first.info)
                left = deadline - time.monotonic()
                if changed or _reached(until, now) or left <= 0:
                    return now
                await waiter.wait(left)
                await asyncio.sleep(min(LOOK_AGAIN_SECONDS, left))

    def events(
        self, task_group_id: UUID, *, after: int = 0, results: bool = True
    ) -> AsyncGenerator[GroupEvent]:
        """What happens to a group from now on; see :func:`mitosis.store.groups.events.group_events`.

        Raises:
            NotFound: no such group; at the first event.
        """
        assert self._wake is not None  # noqa: S101 - only where somebody listens
        return group_events(self._store, self._wake, task_group_id, after=after, results=results)

    async def list(
        self,
        viewer_id: UUID,
        which: GroupFilter | None = None,
        *,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[TaskGroupInfo]:
        """Groups the user may read, newest first, without leases and hook runs. ``limit`` at most 500."""
        return await group_views.page(
            self._database, viewer_id, which or GroupFilter(), after, limit
        )

    async def update(self, task_group_id: UUID, changes: TaskGroupUpdate) -> TaskGroupInfo:
        """Change what is given; a limit given as None is taken away. The workflow arms its timer again.

        Raises:
            NotFound: no such group.
            Conflict: it was changed since ``expected_updated_at``, or it is terminal.
        """
        async with self._database.transaction() as connection:
            live = await endings.lock_live(connection, task_group_id)
            if live.state in TASK_GROUP.terminal:
                raise Conflict(f"the task group is {live.state}", state=live.state)
            values = group_specs.changed(changes, live.number)
            updated = await connection.execute(SQL["update"], values)
            if updated.rowcount == 0:
                raise Conflict("the task group was changed by somebody else since")
            await connection.execute(
                SQL["tell_group"], {"group_number": live.number, "scheduler": True}
            )
        return await self.get(task_group_id)

    async def delete(self, task_group_id: UUID) -> None:
        """Remove a settled group and all its tasks.

        Raises:
            NotFound: no such group.
            Conflict: it is not settled.
        """
        seen = await group_views.one(self._store, task_group_id)
        if not seen.info.settled:
            raise Conflict("only a settled task group can be deleted", state=seen.info.state.value)
        parameters = {"group_number": seen.number, "limit": DELETE_CHUNK}
        async with self._database.connection() as connection:
            while (await connection.execute(SQL["delete_tasks"], parameters)).rowcount:
                pass
            await connection.execute(SQL["delete_group"], parameters)

    async def managers(self, task_group_id: UUID) -> Sequence[ManagerInfo]:
        """The managers listed for the group: matched by tags, or named by a user.

        Raises:
            NotFound: no such group.
        """
        async with self._database.connection() as connection:
            await _number(connection, task_group_id)
            cursor = await connection.execute(SQL["listed_managers"], {"group": task_group_id})
            ids = [row["uuid"] for row in await cursor.fetchall()]
            return await some_managers(connection, self._store, ids)

    async def add_manager(self, task_group_id: UUID, manager_id: UUID, user_id: UUID) -> None:
        """Name a manager for the group; again is success.

        Raises:
            NotFound: no such group or manager.
            PermissionDenied: the manager has no write role in the group's user group.
        """
        async with self._database.transaction() as connection:
            await self._name(connection, task_group_id, manager_id, user_id)
            number = await _number(connection, task_group_id)
            await connection.execute(SQL["tell_group"], {"group_number": number, "scheduler": True})

    async def remove_manager(self, task_group_id: UUID, manager_id: UUID) -> None:
        """Take a manager off the list; its live lease for the group, if any, begins to end.

        Raises:
            NotFound: no such group, or the manager is not listed.
        """
        async with self._database.transaction() as connection:
            parameters = {"group": task_group_id, "manager": manager_id}
            facts = await (await connection.execute(SQL["may_serve"], parameters)).fetchone()
            if facts is None:
                raise NotFound("no such task group", task_group_id=str(task_group_id))
            removed = await connection.execute(SQL["unname_manager"], {**parameters, **facts})
            if removed.rowcount == 0:
                raise NotFound(
                    "the manager is not listed", field="manager_ids", manager_id=str(manager_id)
                )

    async def refresh_managers(self, task_group_id: UUID) -> RefreshedManagers:
        """Match managers to the group's tags again; those a user named stay as they are.

        Raises:
            NotFound: no such group.
        """
        async with self._database.transaction() as connection:
            await _number(connection, task_group_id)
            cursor = await connection.execute(SQL["refresh_managers"], {"group": task_group_id})
            row = await cursor.fetchone() or {"added": [], "removed": [], "kept": []}
        return RefreshedManagers(
            added_managers=row["added"],
            removed_managers=row["removed"],
            user_specified_kept=row["kept"],
        )

    # --- the port of TaskGroupWorkflow --------------------------------------------------------------

    async def observe(self, task_group_id: UUID) -> GroupView:
        """The group as it is now; ``exists=False`` when it was deleted."""
        return await group_views.view(self._store, task_group_id)

    async def apply(self, request: VerbRequest) -> GroupView:
        """Close, reopen, cancel or complete. Ensures: a group already there is success.

        Raises:
            NotFound: no such group.
            InvalidTransition: the state does not allow it.
        """
        await endings.apply(self._database, request)
        return await self.observe(request.task_group_id)

    async def close_if_inactive(self, task_group_id: UUID) -> GroupView:
        """Close an OPEN group whose auto-close time or close deadline has come; else change nothing."""
        await endings.close_if_inactive(self._database, task_group_id)
        return await self.observe(task_group_id)

    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        """Cancel up to 10,000 unclaimed tasks of a group that is discarding."""
        return await endings.discard(self._database, task_group_id)

    async def finalize(self, task_group_id: UUID) -> GroupView:
        """CLOSED with nothing unfinished → COMPLETE; any other state is left as it is."""
        await endings.finalize(self._database, task_group_id)
        return await self.observe(task_group_id)

    async def settle(self, task_group_id: UUID) -> GroupView:
        """Write ``settled_at`` and ``result`` if nothing is left anywhere; else change nothing."""
        await endings.settle(self._database, task_group_id)
        return await self.observe(task_group_id)

    # --- inside --------------------------------------------------------------------------------------

    async def _watch(self, number: int) -> None:
        async with self._database.connection() as connection:
            await connection.execute(SQL["watch"], {"group_number": number})

    async def _name(
        self, connection: Connection, task_group_id: UUID, manager_id: UUID, user_id: UUID
    ) -> None:
        parameters = {"group": task_group_id, "manager": manager_id, "user": user_id}
        facts = await (await connection.execute(SQL["may_serve"], parameters)).fetchone()
        if facts is None:
            raise NotFound("no such task group", task_group_id=str(task_group_id))
        if facts["manager_number"] is None:
            raise NotFound(
                f"no such manager: {manager_id}", field="manager_ids", manager_id=str(manager_id)
            )
        if not facts["allowed"]:
            raise PermissionDenied(
                "the manager has no write role in the user group of this task group",
                field="manager_ids",
                manager_id=str(manager_id),
            )
        await connection.execute(
            SQL["name_managers"], {**parameters, **facts, "managers": [manager_id]}
        )


async def _number(connection: Connection, task_group_id: UUID) -> int:
    row = await (await connection.execute(SQL["number"], {"group": task_group_id})).fetchone()
    if row is None:
        raise NotFound("no such task group", task_group_id=str(task_group_id))
    return int(row["id"])


def _reached(until: Until, info: TaskGroupInfo) -> bool:
    return info.settled or (until == "complete" and info.state in TASK_GROUP.terminal)


def _essence(info: TaskGroupInfo) -> tuple[object, ...]:
    """What counts as a change for somebody who watches."""
    return (
        info.state,
        info.settled,
        info.tasks_total,
        info.tasks_completed,
        info.tasks_running,
        info.updated_at,
        info.counting,
        [(lease.epoch, lease.state) for lease in info.leases],
    )
