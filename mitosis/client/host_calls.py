"""The verbs on hosts; :class:`Client` has them."""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mitosis.client.connection import Params
from mitosis.client.parameters import duration, identifier
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.explain import HostExplanation
from mitosis.contracts.http import ManagerInfo
from mitosis.contracts.manager_verbs import DrainBody, ManagerUpdate

LOOK_SECONDS = 1.0
"""How often a drained host is read while a caller waits for it."""


class HostCalls(RepeatedCalls):
    """Drain, resume, change, explain and delete a host."""

    async def drain_manager(
        self, manager_id: UUID, *, now: bool = False, reason: str | None = None
    ) -> ManagerInfo:
        """Have a host finish its tasks and take no new ones; ``drain.empty`` says when it is done.

        ``now`` gives back the tasks that have not started.
        """
        body = DrainBody(now=now, reason=reason)
        return await self._post(ManagerInfo, _path(manager_id) + "/drain", body)

    async def explain_manager(
        self, manager_id: UUID, *, at: datetime | None = None
    ) -> HostExplanation:
        """Explain what a host does, and why it does not serve the task groups that have work.

        ``at``: explain the last decision about hosts before this time (with a zone) instead.
        """
        query: Params = {} if at is None else {"at": at.isoformat()}
        path = _path(manager_id) + "/explain"
        return await self._get(HostExplanation, path, query)

    async def wait_until_empty(
        self, manager_id: UUID, *, timeout: timedelta | None = None
    ) -> ManagerInfo:
        """Wait until a drained host is empty, or is resumed; return it as it is after ``timeout``."""
        ends = None
        if timeout is not None:
            ends = time.monotonic() + duration(timeout, "timeout").total_seconds()
        while True:
            info = await self._get(ManagerInfo, _path(manager_id))
            late = ends is not None and time.monotonic() >= ends
            if info.drain is None or info.drain.empty or late:
                return info
            await asyncio.sleep(LOOK_SECONDS)

    async def resume_manager(self, manager_id: UUID) -> ManagerInfo:
        """Take a drained host into service again."""
        path = _path(manager_id) + "/resume"
        return await self._repeat(lambda: self._api.model(ManagerInfo, "POST", path))

    async def update_manager(
        self,
        manager_id: UUID,
        *,
        name: str | None = None,
        tags: Iterable[str] | None = None,
        labels: Iterable[str] | None = None,
    ) -> ManagerInfo:
        """Rename a host, or replace its tags or labels; task groups follow when they are refreshed.

        Raises:
            AlreadyExists: another host of its user groups has the name.
        """
        given: dict[str, Any] = {
            "name": name,
            "tags": None if tags is None else frozenset(tags),
            "labels": None if labels is None else frozenset(labels),
        }
        body = ManagerUpdate(**{key: value for key, value in given.items() if value is not None})
        path = _path(manager_id)
        return await self._repeat(lambda: self._api.model(ManagerInfo, "PUT", path, body))

    async def delete_manager(self, manager_id: UUID, *, force: bool = False) -> None:
        """Delete a host without lease; ``force`` forgets what a machine that is gone has to clean up.

        Raises:
            Conflict: it has a lease, or something to clean up; names what.
        """
        await self._api.call("DELETE", _path(manager_id), params={"force": force})


def _path(manager_id: UUID) -> str:
    return f"/managers/{identifier(manager_id, 'manager_id')}"
