"""A control plane over a real database and a real Temporal server, in the test's own process."""

import asyncio
import json
import subprocess
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from temporalio.client import Client

from mitosis.contracts.control import GroupView
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import SubmitTasks
from mitosis.embedded.temporal_program import find_temporal_binary
from mitosis.store.control.control_store import ControlStore
from mitosis.store.groups.definition import create_group
from mitosis.store.pg.database import Database
from mitosis.store.store import Store, StoreOptions
from mitosis.store.tasks.submit import submit_tasks
from mitosis.store.users.accounts import ensure_admin
from workflows.client import ControlClient, TemporalAddress
from workflows.control import ControlService, Intervals
from workflows.plugin import ControlPlugin
from workflows.worker import ControlPorts, WorkerLimits


@dataclass
class Stores:
    """Everything of PostgreSQL."""

    store: Store
    admin: UUID

    @property
    def database(self) -> Database:
        return self.store.database

    @property
    def control(self) -> ControlStore:
        return ControlStore(self.store)

    async def create_group(self, **spec: Any) -> UUID:
        """A new task group of the admin."""
        spec.setdefault("name", f"campaign-{uuid.uuid4().hex[:8]}")
        info = await create_group(self.store, TaskGroupSpec.model_validate(spec), self.admin)
        return info.task_group_id

    async def submit_one(self, task_group_id: UUID) -> None:
        """One command task that nobody will run unless the test does."""
        task = TaskSubmission(command=["true"])
        await submit_tasks(self.store, task_group_id, SubmitTasks(tasks=[task]))

    async def observe(self, task_group_id: UUID) -> GroupView:
        return await self.control.observe_task_group(task_group_id)

    async def outbox_is_empty(self) -> bool:
        async with self.database.connection() as connection:
            row = await (await connection.execute("SELECT count(*) AS n FROM outbox")).fetchone()
        return row is not None and row["n"] == 0


@asynccontextmanager
async def open_stores(url: str) -> AsyncIterator[Stores]:
    async with Store.open(StoreOptions(database_url=url, listens=False)) as store:
        admin = await ensure_admin(store, "admin")
        yield Stores(store, admin.user_id)


class ControlPlane:
    """Starts and stops control services over the same stores and server."""

    def __init__(self, address: str, namespace: str, stores: Stores) -> None:
        self.where = TemporalAddress(address, namespace)
        self.stores = stores
        self._stack = AsyncExitStack()

    async def start(
        self, bootstrap_every_seconds: float = 30.0, look_every_seconds: float = 5.0
    ) -> ControlService:
        """A control service that is ready; it stops with :meth:`stop`."""
        service = self.service(bootstrap_every_seconds, look_every_seconds)
        await self._stack.enter_async_context(service)
        await service.wait_ready(30)
        return service

    def service(
        self, bootstrap_every_seconds: float = 30.0, look_every_seconds: float = 5.0
    ) -> ControlService:
        control = self.stores.control
        return ControlService(
            self.where,
            ControlPorts(control, control, control, control, control),
            control,
            control,
            every=Intervals(
                bootstrap_seconds=bootstrap_every_seconds, look_seconds=look_every_seconds
            ),
            limits=WorkerLimits(versioned=False),
        )

    async def stop(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def client(self) -> Client:
        return await self.where.connect(ControlPlugin())

    async def control(self) -> ControlClient:
        return ControlClient(await self.client())

    async def cli(self, *arguments: str) -> "CliAnswer":
        """The real ``temporal`` program against this server and namespace."""
        where = ("--address", self.where.address, "--namespace", self.where.namespace)
        program = await asyncio.create_subprocess_exec(
            str(find_temporal_binary()),
            *arguments,
            *where,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await program.communicate()
        return CliAnswer(program.returncode or 0, out.decode(), err.decode())


@dataclass
class CliAnswer:
    status: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)


@asynccontextmanager
async def control_plane(url: str, address: str) -> AsyncIterator[ControlPlane]:
    """In a namespace of its own: workflow ids like ``scheduler`` are unique in a namespace only."""
    async with open_stores(url) as stores:
        plane = ControlPlane(address, f"test-{uuid.uuid4().hex[:8]}", stores)
        try:
            yield plane
        finally:
            await plane.stop()
