"""Database activities of a task group: adapters over a port that the store implements.

Each method only forwards: Temporal binds activities to methods of an object, and workflows name them
through this class without importing the store. Every activity *ensures* a goal and returns the state after
it, so a retry after a commit returns the same.
"""

import time
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.errors import as_application_errors
from mitosis.contracts.control import DiscardAnswer, GroupView, VerbRequest
from mitosis.contracts.errors import TemporalUnavailable

DISCARD_SECONDS = 10.0
"""One activity may take 20 s (``workflows/options.py``)."""


class TaskGroupPort(Protocol):
    """The operations of the control plane on one task group in PostgreSQL."""

    async def observe_task_group(self, task_group_id: UUID) -> GroupView:
        """Return the group as it is now; ``exists=False`` when it was deleted."""
        ...

    async def apply(self, request: VerbRequest) -> GroupView:
        """Close, reopen, cancel or complete the group. A group that is already there is success.

        Raises:
            NotFound: no such group.
            InvalidTransition: the state does not allow it.
        """
        ...

    async def close_if_inactive(self, task_group_id: UUID) -> GroupView:
        """Close an OPEN group at its auto-close time; complete it by force at its close deadline (C-08)."""
        ...

    async def end_after_failed_setups(self, task_group_id: UUID) -> GroupView:
        """Cancel the tasks of a group whose setup has failed on every host; leave any other as it is."""
        ...

    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        """Cancel up to 10,000 unclaimed tasks of a group that is discarding."""
        ...

    async def finalize(self, task_group_id: UUID) -> GroupView:
        """Complete a CLOSED group with nothing unfinished; leave any other as it is."""
        ...

    async def settle(self, task_group_id: UUID) -> GroupView:
        """Write ``settled_at`` and ``result`` if nothing is left anywhere; else change nothing."""
        ...


class TaskGroupActivities:
    """Adapter from Temporal to a :class:`TaskGroupPort`."""

    def __init__(self, groups: TaskGroupPort) -> None:
        self._groups = groups

    @activity.defn(name="observe_task_group")
    async def observe(self, task_group_id: UUID) -> GroupView:
        with as_application_errors():
            return await self._groups.observe_task_group(task_group_id)

    @activity.defn(name="apply_verb")
    async def apply(self, request: VerbRequest) -> GroupView:
        """Apply the verb unless its sender has timed out by now; each attempt checks again."""
        valid_until = request.verb.valid_until
        if valid_until is not None and datetime.now(UTC) > valid_until:
            raise ApplicationError(
                f"{request.verb.kind} came too late and was not executed",
                type=TemporalUnavailable.code,
                non_retryable=True,
            )
        with as_application_errors():
            return await self._groups.apply(request)

    @activity.defn(name="close_if_inactive")
    async def close_if_inactive(self, task_group_id: UUID) -> GroupView:
        with as_application_errors():
            return await self._groups.close_if_inactive(task_group_id)

    @activity.defn(name="end_after_failed_setups")
    async def end_after_failed_setups(self, task_group_id: UUID) -> GroupView:
        with as_application_errors():
            return await self._groups.end_after_failed_setups(task_group_id)

    @activity.defn(name="discard_ready_tasks")
    async def discard(self, task_group_id: UUID) -> DiscardAnswer:
        """Cancel chunk after chunk for some seconds: millions of tasks cost few events."""
        ends, cancelled = time.monotonic() + DISCARD_SECONDS, 0
        with as_application_errors():
            while True:
                chunk = await self._groups.discard(task_group_id)
                cancelled += chunk.cancelled
                if not (chunk.remaining and chunk.cancelled) or time.monotonic() > ends:
                    return DiscardAnswer(cancelled=cancelled, remaining=chunk.remaining)

    @activity.defn(name="finalize_task_group")
    async def finalize(self, task_group_id: UUID) -> GroupView:
        with as_application_errors():
            return await self._groups.finalize(task_group_id)

    @activity.defn(name="settle_task_group")
    async def settle(self, task_group_id: UUID) -> GroupView:
        with as_application_errors():
            return await self._groups.settle(task_group_id)
