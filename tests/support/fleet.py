"""The whole product without its supervisor: API and control worker in this event loop, agents as processes.

PostgreSQL and Temporal are the session's real servers. Each agent is a process that can be killed, and has a
:class:`~tests.support.wire.Wire` to the API. ``host_lost_after`` is of seconds, so that a loss is no long
wait; a module in which no host may be lost has ``HOST_LOST_AFTER``, since a busy machine can keep an agent
silent for that long. One fleet serves the tests of a module, each with hosts of its own: ``shared_fleet``
and ``it``.
"""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio

from api.service import ApiOptions, RunningApi, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.control import ManagerView
from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import RegisterManager, TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.task import TaskSubmission
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.control.control_store import ControlStore
from mitosis.store.managers.views import observe_manager
from mitosis.store.store import StoreOptions
from tests.support.prepared import PreparedProcess
from tests.support.waiting import wait_until_async
from tests.support.wire import Wire
from workflows import options
from workflows.client import ControlClient, TemporalAddress
from workflows.control import ControlService, Intervals
from workflows.worker import ControlPorts, WorkerLimits

PATIENCE_SECONDS = 60.0
LOST_AFTER = timedelta(seconds=2)
BEATS_WITHIN = timedelta(seconds=2)
"""So soon Temporal misses a killed agent, and its group may settle; 5 s by default."""


@dataclass
class FleetHost:
    """One manager: its agent process, its wire, its state folder."""

    fleet: "Fleet"
    manager_id: UUID
    token: str
    wire: Wire
    folder: Path
    machine_id: str | None = None
    """None: the one of this machine."""
    temporal_address: str | None = None
    """None: the one of the fleet."""
    look_seconds: float | None = None
    """How often the agent looks for tasks that wait for too long; None: as always."""
    process: PreparedProcess | None = None

    async def start(self) -> None:
        """Start the agent, and wait for the answer to its hello."""
        before = self.said("hello.answered")
        await self.begin()
        await self.fleet.until(lambda: self.said("hello.answered") > before)

    async def begin(self) -> None:
        """Start the agent process; no more."""
        given: dict[str, Any] = {
            "api_url": self.wire.url,
            "manager_id": str(self.manager_id),
            "token": self.token,
            "temporal_address": self.temporal_address or self.fleet.temporal_address,
            "state_dir": str(self.folder / "state"),
            "run_parent": str(self.folder),
        }
        own = {"machine_id": self.machine_id, "look_seconds": self.look_seconds}
        given |= {name: value for name, value in own.items() if value is not None}
        with self.log.open("ab") as log:
            self.process = await PreparedProcess.start(
                "tests.support.run_agent", given, out=log.fileno(), err=log.fileno()
            )

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"

    def said(self, words: str) -> int:
        """How often the agent has logged this event."""
        return self.log.read_text().count(f'"{words}"') if self.log.exists() else 0

    async def kill(self) -> None:
        """SIGKILL, as by a power cut."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its end; the exit status."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def view(self) -> ManagerView:
        return await observe_manager(self.fleet.api.app_state.store, self.manager_id)


@dataclass
class Fleet:
    api: RunningApi
    client: Client
    temporal_address: str
    folder: Path
    hosts: list[FleetHost] = field(default_factory=list)
    _exits: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def host(self, *, start: bool = True) -> FleetHost:
        """A new manager; its agent runs unless told otherwise."""
        name = f"host-{len(self.hosts) + 1}"
        registered = await self.client.register_manager(RegisterManager(name=name))
        return await self._add(registered.manager_id, registered.token, name, start=start)

    async def copy_of(self, host: FleetHost) -> FleetHost:
        """Another machine with the identity and a copy of the state of ``host``."""
        other = await self._add(host.manager_id, host.token, f"copy-{len(self.hosts)}", start=False)
        other.machine_id = "of the copy"
        shutil.copytree(host.folder / "state", other.folder / "state")
        return other

    async def retire(self) -> None:
        """Kill every agent and forget every host and group: the next test finds an empty world."""
        await asyncio.gather(*(host.kill() for host in self.hosts))
        self.hosts.clear()

        async def emptied() -> bool:
            """Workflows still look at their rows: the locks of all tables meet theirs now and then."""
            try:
                await self.rows(
                    "TRUNCATE task_groups, managers, task, open_task, task_result, outbox,"
                    " deleted_groups CASCADE"
                )
            except (psycopg.OperationalError, DatabaseUnavailable):
                return False
            return True

        await self.until(emptied)

    async def _add(self, manager_id: UUID, token: str, name: str, *, start: bool) -> FleetHost:
        folder = self.folder / name
        folder.mkdir()
        wire = await self._exits.enter_async_context(Wire(self.api.url).open())
        host = FleetHost(self, manager_id, token, wire, folder)
        self.hosts.append(host)
        self._exits.push_async_callback(host.kill)
        if start:
            await host.start()
        return host

    async def group(self, *tasks: TaskSubmission, workers: int = 2, **spec: Any) -> UUID:
        """A group with these tasks."""
        plan = WorkerAllocationPlan(worker_count=workers, task_prefetch_count=1)
        values = {"name": f"group-{uuid.uuid4().hex[:8]}", "worker_allocation_plan": plan} | spec
        info = await self.client.create_group(TaskGroupSpec.model_validate(values))
        if tasks:
            await self.client.submit(info.task_group_id, list(tasks))
        return info.task_group_id

    async def settled(self, group: UUID) -> TaskGroupInfo:
        """Close the group, wait for its settlement."""
        await self.client.close_group(group)
        return await self.client.wait(group, timeout=timedelta(seconds=PATIENCE_SECONDS))

    async def attempts(self, group: UUID) -> list[int]:
        """Of the results, in the order of submission."""
        return [task.attempt async for task in self.client.tasks(group)]

    async def until_claimed(self, count: int) -> None:
        """Until so many unfinished tasks are claimed, of the group and by whomever."""

        async def claimed() -> bool:
            return len(await self.rows("SELECT 1 FROM open_task WHERE state = 1")) == count

        await self.until(claimed)

    async def rows(self, statement: Any, *parameters: Any) -> list[dict[str, Any]]:
        async with self.api.app_state.store.database.connection() as connection:
            cursor = await connection.execute(statement, parameters)
            return await cursor.fetchall() if cursor.description else []

    async def until(self, condition: Any, timeout: float = PATIENCE_SECONDS) -> None:
        await wait_until_async(condition, timeout, self._story, interval=0.02)

    def _story(self) -> str:
        return "\n".join(h.log.read_text()[-1500:] for h in self.hosts if h.log.exists())


@asynccontextmanager
async def fleet(
    database: str,
    temporal: str,
    folder: Path,
    *,
    host_lost_after: timedelta = LOST_AFTER,
    heartbeat_within: timedelta = BEATS_WITHIN,
    connections: int = 10,
) -> AsyncIterator[Fleet]:
    """API and control worker, no host yet; in a namespace of its own.

    ``connections``: to PostgreSQL; API and control worker share them here.
    """
    where = TemporalAddress(temporal, f"test-{uuid.uuid4().hex[:8]}")
    wanted = ApiOptions(
        store=StoreOptions(
            database_url=database, host_lost_after=host_lost_after, pool_size=connections
        ),
        signing_key=ed25519_private_key(),
        temporal_namespace=where.namespace,
        stop_after=timedelta(seconds=1),
    )
    async with AsyncExitStack() as exits:
        exits.enter_context(patch.object(options, "HOST_HEARTBEAT_WITHIN", heartbeat_within))
        control = await ControlClient.open(where)
        api = await exits.enter_async_context(running_api(wanted, control))
        state, store = api.app_state, ControlStore(api.app_state.store)
        ports = ControlPorts(store, store, store, store, store)
        service = ControlService(
            where,
            ports,
            store,
            store,
            every=Intervals(bootstrap_seconds=1),
            limits=WorkerLimits(versioned=False),
        )
        await exits.enter_async_context(service)
        await service.wait_ready(PATIENCE_SECONDS)
        token = (await admin_token(state)).token
        client = await exits.enter_async_context(Client(api.url, token))
        it = Fleet(api, client, temporal, folder)
        async with it._exits:
            yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_fleet(
    module_database: str,
    temporal_server: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Fleet]:
    lost_after = getattr(request.module, "HOST_LOST_AFTER", LOST_AFTER)
    folder = tmp_path_factory.mktemp("fleet")
    async with fleet(module_database, temporal_server, folder, host_lost_after=lost_after) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def it(shared_fleet: Fleet, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The fleet of the module, without hosts; its folder is the test's own."""
    shared_fleet.folder = tmp_path
    yield shared_fleet
    await shared_fleet.retire()


@pytest.fixture
def diary(tmp_path: Path) -> "Diary":
    return Diary(tmp_path)


@dataclass(frozen=True)
class Diary:
    """Files in which tasks and hooks write what they do, and for which tasks wait."""

    folder: Path

    def task(self, name: str, *, wait: bool = False, **more: Any) -> TaskSubmission:
        """Writes ``S name``, waits for :meth:`go` if told to, writes ``E name``."""
        until = f"until [ -e {self._go(name)} ]; do sleep 0.1; done; " if wait else ""
        script = f"echo S {name} >> {self._log}; {until}echo E {name} >> {self._log}"
        return TaskSubmission(command=["/bin/sh", "-c", script], **more)

    def hook(self, name: str, *, wait: bool = False) -> HookSpec:
        until = f"until [ -e {self._go(name)} ]; do sleep 0.1; done; " if wait else ""
        script = f"echo S {name} >> {self._log}; {until}echo E {name} >> {self._log}"
        return HookSpec(command=("/bin/sh", "-c", script))

    def go(self, *names: str) -> None:
        for name in names:
            self._go(name).touch()

    def lines(self) -> Sequence[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def began(self, name: str) -> int:
        return self.lines().count(f"S {name}")

    def ended(self, name: str) -> int:
        return self.lines().count(f"E {name}")

    @property
    def _log(self) -> Path:
        return self.folder / "diary"

    def _go(self, name: str) -> Path:
        return self.folder / f"go-{name}"
