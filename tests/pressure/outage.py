"""One stack whose API, PostgreSQL and Temporal can be taken away and given back, under long tasks.

Everything is the real thing: servers, control worker and API in the caller's loop, an agent as a process. The
times are a :class:`Scale`: ``make pressure`` runs those of production, the test suite the same times divided
by one factor. Proportions are what counts: an outage lasts two thirds of ``host_lost_after``, a task twice
as long as its outage.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from api.service import ApiOptions, admin_token, running_api
from mitosis.client.client import Client
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.embedded.data_folder import DataFolder, ed25519_private_key, free_port
from mitosis.embedded.postgres import EmbeddedPostgres
from mitosis.embedded.temporal import EmbeddedTemporal
from mitosis.store.control.control_store import ControlStore
from mitosis.store.pg.migrate import migrate
from mitosis.store.store import Store, StoreOptions
from tests.support.waiting import wait_until_async
from workflows.client import ControlClient, TemporalAddress
from workflows.control import ControlService
from workflows.worker import ControlPorts

ROOT = Path(__file__).resolve().parents[2]
GROUP = "long"
PARTS = ("api", "postgres", "temporal")
BACK_SECONDS = 60.0
START_SECONDS = 4.0
"""A server that comes back is away this much longer, whatever the scale."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The times of one run, in seconds."""

    host_lost_after: float = 90.0
    outage: float = 60.0
    task: float = 120.0
    renew: float = 3.0

    def divided(self, factor: float) -> "Scale":
        """The same proportions; only what a server needs to start is not divided."""
        return Scale(
            self.host_lost_after / factor + START_SECONDS,
            self.outage / factor,
            self.task / factor,
            self.renew / factor,
        )


@dataclass
class Site:
    """The running stack."""

    scale: Scale
    folder: Path
    data: DataFolder
    postgres: EmbeddedPostgres
    temporal: EmbeddedTemporal
    options: ApiOptions
    control: ControlClient
    token: str = ""
    manager_token: str = ""
    manager_id: str = ""
    _api: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.options.port}"

    def client(self) -> Client:
        give_up_after = timedelta(seconds=self.scale.outage + BACK_SECONDS)
        return Client(self.url, self.token, give_up_after=give_up_after)

    async def take_away(self, part: str) -> None:
        """Now, a server by SIGKILL; it does not come back by itself."""
        if part == "api":
            await self._api.aclose()
            return
        process = self._server(part).process
        assert process is not None
        process.spec = replace(process.spec, stop=())
        await process.stop()

    async def give_back(self, part: str) -> None:
        if part == "api":
            running = await self._api.enter_async_context(running_api(self.options, self.control))
            self.token = self.token or (await admin_token(running.app_state)).token
        else:
            await self._server(part).start()

    def _server(self, part: str) -> EmbeddedPostgres | EmbeddedTemporal:
        return self.postgres if part == "postgres" else self.temporal

    async def outage(self, parts: Sequence[str], words: Sequence[str]) -> None:
        """All of ``parts`` away for the time of the scale, and back; the tasks ``words`` outlive it."""
        for part in parts:
            await self.take_away(part)
        await asyncio.sleep(self.scale.outage)
        assert not set(words) & set(self.ended()), "a task ended before what was away came back"
        for part in sorted(parts, key=("postgres", "temporal", "api").index):
            await self.give_back(part)

    def started(self) -> list[str]:
        """One word per execution that began, of all tasks."""
        return _lines(self.folder / "started")

    def all_started(self, words: Sequence[str]) -> bool:
        return set(words) <= set(self.started())

    def ended(self) -> list[str]:
        return _lines(self.folder / "ended")

    def task(self, word: str) -> dict[str, Any]:
        """A task that records its beginning and, a long time later, its end."""
        script = 'echo "$1" >>started; sleep "$2"; echo "$1" >>ended; echo "result $1"'
        return {
            "command": ["sh", "-c", script, "sh", word, f"{self.scale.task:g}"],
            "working_directory": str(self.folder),
        }

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@asynccontextmanager
async def site(folder: Path, scale: Scale) -> AsyncIterator[Site]:
    """Everything up, one host in contact, no group yet."""
    data = DataFolder(folder / "data")
    data.lock()
    async with AsyncExitStack() as exits:
        exits.callback(data.release)
        postgres, temporal = EmbeddedPostgres(data), EmbeddedTemporal(data)
        for server in (postgres, temporal):
            exits.push_async_callback(server.stop)
        await asyncio.gather(postgres.start(), temporal.start())
        await asyncio.to_thread(migrate, postgres.url())
        where = TemporalAddress(temporal.address, "mitosis")
        lost_after = timedelta(seconds=scale.host_lost_after)
        options = ApiOptions(
            store=StoreOptions(database_url=postgres.url(), host_lost_after=lost_after),
            signing_key=ed25519_private_key(),
            temporal_namespace=where.namespace,
            port=free_port(),
            stop_after=timedelta(seconds=1),
        )
        control = await ControlClient.open(where)
        one = Site(scale, folder, data, postgres, temporal, options, control)
        exits.push_async_callback(one.take_away, "api")
        await one.give_back("api")
        store = await exits.enter_async_context(Store.open(replace(options.store, listens=False)))
        service = _control_service(where, ControlStore(store))
        await exits.enter_async_context(service)
        await service.wait_ready(30)
        await _register(one)
        await exits.enter_async_context(_agent(one))
        yield one


def _control_service(where: TemporalAddress, store: ControlStore) -> ControlService:
    return ControlService(where, ControlPorts(store, store, store, store, store), store, store)


async def _register(one: Site) -> None:
    async with one.client() as client:
        host = await client.register_manager(RegisterManager(name="host"))
    one.manager_id, one.manager_token = str(host.manager_id), host.token


@asynccontextmanager
async def _agent(one: Site) -> AsyncIterator[None]:
    run_parent = one.folder / "r"
    run_parent.mkdir()
    given = {
        "api_url": one.url,
        "manager_id": one.manager_id,
        "token": one.manager_token,
        "temporal_address": one.temporal.address,
        "state_dir": str(one.folder / "agent"),
        "run_parent": str(run_parent),
        "renew_seconds": one.scale.renew,
        "drain_seconds": 0,
    }
    with (one.folder / "agent.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.run_agent"),
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(given).encode())
    process.stdin.close()
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def survive(one: Site, outages: Sequence[Sequence[str]]) -> None:
    """Long tasks of one group; each outage falls while all of them run. Checks what came out.

    Also submits a task in the middle of every outage: its SDK waits and goes on.

    Raises:
        AssertionError: something was lost, ran twice, or its result did not arrive.
    """
    words = [f"{index}-{slot}" for index in range(len(outages)) for slot in range(2)]
    late: list[asyncio.Task[None]] = []
    async with one.client() as client:
        plan = WorkerAllocationPlan(worker_count=len(words))
        await client.create_group(TaskGroupSpec(name=GROUP, worker_allocation_plan=plan))
        for index, parts in enumerate(outages):
            mine = words[2 * index : 2 * index + 2]
            await client.submit(GROUP, [one.task(word) for word in mine])
            await wait_until_async(partial(one.all_started, mine), 60)
            late.append(asyncio.create_task(_submit_late(one, f"late-{index}")))
            await one.outage(parts, mine)
        async with asyncio.timeout(BACK_SECONDS):
            await asyncio.gather(*late)
        await client.close_group(GROUP)
        done = await client.wait(GROUP, timeout=timedelta(seconds=one.scale.task + BACK_SECONDS))
        results = [task async for task in client.tasks(GROUP)]
    _check(one, words, done, results)


async def _submit_late(one: Site, word: str) -> None:
    await asyncio.sleep(one.scale.outage / 2)
    task = {"command": ["sh", "-c", f"echo {word} >>{one.folder}/started"]}
    async with one.client() as client:
        await client.submit(GROUP, [task])


def _check(one: Site, words: Sequence[str], done: Any, results: Sequence[Any]) -> None:
    started, ended = one.started(), one.ended()
    late = sorted(word for word in started if word.startswith("late"))
    assert sorted(set(started)) == sorted(started), f"executed twice: {started}"
    assert sorted(ended) == sorted(words), f"not all ended: {ended}"
    assert len(late) == len(words) // 2, late
    assert done.settled, done
    assert (done.tasks_succeeded, done.tasks_total) == (len(started), len(started)), done
    assert {task.attempt for task in results} == {1}
    said = {(task.detail or {}).get("stdout", "").strip() for task in results}
    assert {f"result {word}" for word in words} <= said, said
    assert one.query("SELECT count(*) FROM open_task") == [(0,)]
    assert one.query("SELECT count(DISTINCT epoch) FROM leases WHERE end_reason = 'lost'") == [(0,)]
