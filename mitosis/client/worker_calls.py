"""The calls about worker services and named tasks; :class:`Client` has them."""

import re
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import quote

from mitosis.client.connection import Params
from mitosis.client.parameters import model
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import Page
from mitosis.contracts.worker_services import (
    WORKER_ID,
    AvailableWorker,
    DrainWorker,
    NamedTaskInfo,
    RegisteredWorker,
    RegisterWorker,
    RegistrationInfo,
    WorkerInfo,
)

Availability = Literal["any", "none", "one"]


class WorkerCalls(RepeatedCalls):
    """Register, list, show and drain worker services, and look for one."""

    async def register_worker(self, worker: RegisterWorker) -> RegisteredWorker:
        """Register a process of a worker service; the answer has its token. Not retried.

        Raises:
            Superseded: a later process has registered.
            WorkerIdInUse: another machine that is still in contact uses the id.
        """
        body = model(RegisterWorker, worker, "worker")
        return await self._api.model(RegisteredWorker, "POST", "/workers", body)

    def workers(self) -> AsyncIterator[WorkerInfo]:
        """Iterate over the worker services of the caller's user groups."""
        return self._pages(Page[WorkerInfo], "/workers", {})

    async def worker(self, worker_id: str) -> WorkerInfo:
        """Return one worker service with the named tasks that it supports.

        Raises:
            WorkerNotFound: there is none.
        """
        return await self._get(WorkerInfo, _path(worker_id))

    def worker_registrations(self, worker_id: str) -> AsyncIterator[RegistrationInfo]:
        """Iterate over the registrations of a worker service, the last one first."""
        return self._pages(Page[RegistrationInfo], _path(worker_id) + "/registrations", {})

    async def drain_worker(self, worker_id: str, *, reason: str | None = None) -> WorkerInfo:
        """Give a worker service no tasks from now on, until it is resumed."""
        body = DrainWorker(reason=reason)
        return await self._post(WorkerInfo, _path(worker_id) + "/drain", body)

    async def resume_worker(self, worker_id: str) -> WorkerInfo:
        """End the drain of a worker service."""
        path = _path(worker_id) + "/resume"
        return await self._repeat(lambda: self._api.model(WorkerInfo, "POST", path))

    def named_tasks(self, *, available: Availability = "any") -> AsyncIterator[NamedTaskInfo]:
        """Iterate over named tasks with the worker services that can execute them now.

        ``available``: all of them, those without a worker service, or those with a single one.
        """
        return self._pages(Page[NamedTaskInfo], "/named-tasks", {"available": available})

    async def available_worker(
        self, namespace: str, name: str, version: str, *, group_name: str | None = None
    ) -> AvailableWorker:
        """Return the worker service to choose for a named task now.

        Raises:
            NoWorkersAvailable: there is none; names those that support it, and the nearest named tasks.
        """
        steps = "/".join(quote(step, safe="") for step in (namespace, name, version))
        query: Params = {} if group_name is None else {"group_name": group_name}
        return await self._get(AvailableWorker, f"/named-tasks/{steps}/available-worker", query)


def _path(worker_id: str) -> str:
    if not isinstance(worker_id, str) or not re.fullmatch(WORKER_ID, worker_id):
        raise InvalidRequest(
            f"must be the id of a worker service, not {worker_id!r:.100}", field="worker_id"
        )
    return f"/workers/{quote(worker_id, safe='')}"
