"""Task groups: create, look, change; and the port of TaskGroupWorkflow.

Endings (cancel, complete, finalize, settle, discard) are in ``endings.py``, what is shown in
``group_views.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

from mitosis.contracts.control import DiscardAnswer, GroupView, VerbRequest
from mitosis.contracts.http import ManagerInfo, Page, TaskGroupInfo, TaskGroupSpec, TaskGroupUpdate
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.store.database import Database
from mitosis.store.wake import Wake

Until = Literal["changed", "complete", "settled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups a list shows; all conditions hold. Empty = all the viewer may see."""

    states: Sequence[TaskGroupState] = ()
    settled: bool | None = None
    tags: Sequence[str] = ()
    """It has all of these."""
    labels: Sequence[str] = ()
    name: str | None = None
    """Exactly this name, or a pattern with ``*``."""


class TaskGroupStore:
    """All access to task groups. Implements ``activities.task_groups.TaskGroupPort``."""

    def __init__(self, database: Database, wake: Wake | None = None) -> None:
        """Without ``wake``, :meth:`wait` only looks once."""
        self._database = database
        self._wake = wake

    async def create(self, spec: TaskGroupSpec, user_id: UUID) -> TaskGroupInfo:
        """A new OPEN group, its pokes with it (its workflow starts by the outbox).

        The caller has checked that the user may write to ``spec.group_name``.

        Raises:
            NotFound: no such user group or manager.
            AlreadyExists: the name is taken in that user group.
            InvalidRequest: the plan cannot hold on any host (more exclusive workers than cores listed).
        """
        raise NotImplementedError

    async def resolve(self, reference: str) -> UUID:
        """The id behind a UUID or ``group/name``.

        Raises:
            NotFound: no such group.
        """
        raise NotImplementedError

    async def get(self, task_group_id: UUID) -> TaskGroupInfo:
        """Everything about one group.

        Raises:
            NotFound: no such group.
        """
        raise NotImplementedError

    async def wait(self, task_group_id: UUID, until: Until, timeout: timedelta) -> TaskGroupInfo:
        """:meth:`get` as soon as the group changed, became terminal or settled; after ``timeout`` as it is.

        Holds no connection while it waits. ``complete`` means COMPLETE or CANCELLED.

        Raises:
            NotFound: no such group.
        """
        raise NotImplementedError

    async def list(
        self,
        viewer_id: UUID,
        which: GroupFilter | None = None,
        *,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[TaskGroupInfo]:
        """Groups the user may read, newest first, without leases and hook runs. ``limit`` at most 500."""
        raise NotImplementedError

    async def update(self, task_group_id: UUID, changes: TaskGroupUpdate) -> TaskGroupInfo:
        """Change what is given.

        Raises:
            NotFound: no such group.
            Conflict: it was changed since ``expected_updated_at``, or it is terminal.
        """
        raise NotImplementedError

    async def delete(self, task_group_id: UUID) -> None:
        """Remove a settled group and all its tasks.

        Raises:
            NotFound: no such group.
            Conflict: it is not settled.
        """
        raise NotImplementedError

    async def managers(self, task_group_id: UUID) -> Sequence[ManagerInfo]:
        """The managers listed for the group: matched by tags, or named by a user.

        Raises:
            NotFound: no such group.
        """
        raise NotImplementedError

    async def add_manager(self, task_group_id: UUID, manager_id: UUID, user_id: UUID) -> None:
        """Name a manager for the group; again is success.

        Raises:
            NotFound: no such group or manager.
            PermissionDenied: the manager has no write role in the group's user group.
        """
        raise NotImplementedError

    async def remove_manager(self, task_group_id: UUID, manager_id: UUID) -> None:
        """Take a manager off the list; its live lease for the group, if any, begins to end.

        Raises:
            NotFound: no such group, or the manager is not listed.
        """
        raise NotImplementedError

    async def refresh_managers(self, task_group_id: UUID) -> int:
        """Match managers to the group's tags again; gives how many are listed by tags now.

        Raises:
            NotFound: no such group.
        """
        raise NotImplementedError

    # --- the port of TaskGroupWorkflow --------------------------------------------------------------

    async def observe(self, task_group_id: UUID) -> GroupView:
        """The group as it is now; ``exists=False`` when it was deleted."""
        raise NotImplementedError

    async def apply(self, request: VerbRequest) -> GroupView:
        """Close, reopen, cancel or complete. Ensures: a group already there is success.

        Raises:
            NotFound: no such group.
            InvalidTransition: the state does not allow it.
        """
        raise NotImplementedError

    async def close_if_inactive(self, task_group_id: UUID) -> GroupView:
        """Close an OPEN group whose auto-close time or close deadline has come; else change nothing."""
        raise NotImplementedError

    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        """Cancel up to 10,000 unclaimed tasks of a group that is discarding."""
        raise NotImplementedError

    async def finalize(self, task_group_id: UUID) -> GroupView:
        """CLOSED with nothing unfinished → COMPLETE; any other state is left as it is."""
        raise NotImplementedError

    async def settle(self, task_group_id: UUID) -> GroupView:
        """Write ``settled_at`` and ``result`` if nothing is left anywhere; else change nothing."""
        raise NotImplementedError
