"""Worker services in the database of a test: registered, silent, drained in a few words."""

from dataclasses import dataclass
from typing import Any

from mitosis.contracts.worker_services import HeartbeatAnswer, RegisterWorker
from mitosis.store.registry.contact import record_heartbeat, say_goodbye
from mitosis.store.registry.registration import NewRegistration, register_worker
from mitosis.store.registry.selection import NamedTask
from tests.support.campaigns import World


def task(name: str = "resize", version: str = "1", **facts: Any) -> dict[str, Any]:
    """A supported task of the namespace ``images``."""
    return {"namespace": "images", "name": name, "version": version, **facts}


def named(name: str = "resize", version: str = "1", group: str = "alice") -> NamedTask:
    return NamedTask(group, "images", name, version)


async def registered(
    w: World, worker_id: str = "one", *tasks: dict[str, Any], **facts: Any
) -> "Service":
    """A service of alice that supports ``images/resize@1`` unless it is said; without a heartbeat."""
    spec = RegisterWorker.model_validate(
        {"worker_id": worker_id, "supported_tasks": tasks or (task(),), **facts}
    )
    return Service(w, worker_id, await register_worker(w.store, spec, w.user_id))


async def healthy(
    w: World, worker_id: str = "one", *tasks: dict[str, Any], **facts: Any
) -> "Service":
    """A registered service that has sent a heartbeat."""
    service = await registered(w, worker_id, *tasks, **facts)
    await service.heartbeat()
    return service


@dataclass
class Service:
    """One process of a worker service."""

    w: World
    worker_id: str
    made: NewRegistration

    async def heartbeat(self) -> HeartbeatAnswer:
        return await record_heartbeat(self.w.store, self.made.worker_uuid, self.made.incarnation)

    async def goodbye(self, reason: str = "goodbye") -> None:
        await say_goodbye(self.w.store, self.made.worker_uuid, self.made.incarnation, reason)

    async def ago(self, seconds: float) -> None:
        """Move the times of the registration into the past."""
        await self.w.rows(
            "UPDATE worker_registrations SET registered_at = registered_at - d,"
            " last_heartbeat_at = last_heartbeat_at - d, alive_until = alive_until - d"
            " FROM make_interval(secs => %s) AS d WHERE id = %s",
            seconds,
            self.made.registration_id,
        )
