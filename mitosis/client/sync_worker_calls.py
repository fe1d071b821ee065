"""The calls about worker services without async; :class:`SyncClient` has them."""

from collections.abc import Iterator

from mitosis.client.client import Client
from mitosis.client.loop_thread import LoopThread
from mitosis.client.sync_task_group import each_of
from mitosis.client.worker_calls import Availability
from mitosis.contracts.worker_services import (
    AvailableWorker,
    NamedTaskInfo,
    RegisteredWorker,
    RegisterWorker,
    RegistrationInfo,
    WorkerInfo,
)


class SyncWorkerCalls:
    """Register, list, show and drain worker services, and look for one."""

    _client: Client
    _loop: LoopThread

    def register_worker(self, worker: RegisterWorker) -> RegisteredWorker:
        return self._loop.run(self._client.register_worker(worker))

    def workers(self) -> Iterator[WorkerInfo]:
        return each_of(self._loop, self._client.workers())

    def worker(self, worker_id: str) -> WorkerInfo:
        return self._loop.run(self._client.worker(worker_id))

    def worker_registrations(self, worker_id: str) -> Iterator[RegistrationInfo]:
        return each_of(self._loop, self._client.worker_registrations(worker_id))

    def drain_worker(self, worker_id: str, *, reason: str | None = None) -> WorkerInfo:
        return self._loop.run(self._client.drain_worker(worker_id, reason=reason))

    def resume_worker(self, worker_id: str) -> WorkerInfo:
        return self._loop.run(self._client.resume_worker(worker_id))

    def named_tasks(self, *, available: Availability = "any") -> Iterator[NamedTaskInfo]:
        return each_of(self._loop, self._client.named_tasks(available=available))

    def available_worker(
        self, namespace: str, name: str, version: str, *, group_name: str | None = None
    ) -> AvailableWorker:
        return self._loop.run(
            self._client.available_worker(namespace, name, version, group_name=group_name)
        )
