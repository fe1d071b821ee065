"""What does one call of the API cost? Median and p99 over loopback, server in a process of its own.

The floor is an empty GET. The rows below it add PostgreSQL: a submission of one task, a claim and a
report of 256, with the lean calls of the agent and, for the submission, with the SDK.
"""

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection

import httpx2

from api.service import ApiOptions, admin_token, running_api
from bench.scratch_database import scratch_database
from mitosis.client.client import Client
from mitosis.contracts.agent_http import EnvironmentChange, Hello
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.contracts.wire import ClaimTasks, Outcome, ReportTasks, TaskReport
from mitosis.embedded.data_folder import ed25519_private_key, free_port
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.pg.database import Database
from mitosis.store.store import Store, StoreOptions
from tests.support.manager_api import ManagerApi
from workflows.client import ControlClient, TemporalAddress

BATCH, ROUNDS, SMALL_ROUNDS = 256, 60, 400
Call = Callable[[], Awaitable[object]]


async def serve(url: str, parent: Connection) -> None:
    options = ApiOptions(
        store=StoreOptions(database_url=url),
        signing_key=ed25519_private_key(),
        temporal_namespace="mitosis",
    )
    nowhere = await ControlClient.open(TemporalAddress(f"127.0.0.1:{free_port()}"))
    async with running_api(options, nowhere) as api:
        parent.send((api.url, (await admin_token(api.app_state)).token))
        await asyncio.to_thread(parent.recv)


def server(url: str, parent: Connection) -> None:
    asyncio.run(serve(url, parent))


async def measure(name: str, call: Call, rounds: int) -> None:
    for _ in range(min(20, rounds)):
        await call()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        times.append((time.perf_counter() - began) * 1e3)
    p99 = statistics.quantiles(times, n=100)[98]
    print(f"{name:<34} {statistics.median(times):>9.2f} {p99:>9.2f} {min(times):>9.2f}")


async def leased(client: Client, manager: ManagerApi, database_url: str) -> int:
    """The epoch of a lease on the group ``bench``, its environment ready."""
    hello = Hello(
        incarnation=1, machine_id="m", boot_id="b", host_name="h", cores=(0,), agent_version="0"
    )
    await manager.hello(hello)
    async with Database.open(database_url) as database:
        await assign_round(Store(database=database))
    (lease,) = (await client.group("bench")).leases
    grant = await manager.take(lease.epoch)
    for change in (
        EnvironmentChange(event="preparing", epoch=lease.epoch, fingerprint="f"),
        EnvironmentChange(event="prepared", epoch=lease.epoch, fingerprint="f"),
    ):
        await manager.change_environment(grant.task_group_id, change)
    return lease.epoch


async def calls(url: str, token: str, database_url: str) -> None:
    task = {"command": ["true"]}
    async with AsyncExitStack() as exits:
        client = await exits.enter_async_context(Client(url, token))
        http = await exits.enter_async_context(httpx2.AsyncClient(trust_env=False))
        await client.create_group(TaskGroupSpec(name="bench"))
        await client.submit("bench", [task])
        made = await client.register_manager(RegisterManager(name="host"))
        manager = await exits.enter_async_context(ManagerApi(url, made.token))
        epoch = await leased(client, manager, database_url)
        await client.submit("bench", ({**task} for _ in range((ROUNDS + 25) * BATCH)))

        seq = 0
        held: list[tuple[int, int]] = []

        async def claim() -> None:
            nonlocal seq
            seq += 1
            body = ClaimTasks(epoch=epoch, claim_seq=seq, acked_seq=seq - 1, max_tasks=BATCH)
            held.extend((item.task_id, item.attempt) for item in (await manager.claim(body)).tasks)

        async def report() -> None:
            batch = [
                TaskReport(task_id=i, attempt=a, outcome=Outcome.SUCCEEDED, exit_code=0)
                for i, a in held[:BATCH]
            ]
            del held[:BATCH]
            await manager.report_tasks(ReportTasks(epoch=epoch, reports=batch))

        print(f"{'call':<34} {'p50 ms':>9} {'p99 ms':>9} {'best ms':>9}")
        await measure("GET, empty answer", lambda: http.get(url + "/health"), SMALL_ROUNDS)
        await measure("GET /me (token checked)", client.me, SMALL_ROUNDS)
        await measure("submit 1 task (SDK)", lambda: client.submit("bench", [task]), SMALL_ROUNDS)
        await measure(f"claim {BATCH}", claim, ROUNDS)
        await measure(f"report {BATCH}", report, ROUNDS)


async def run() -> None:
    async with scratch_database() as url:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=server, args=(url, theirs))
        process.start()
        try:
            served_at, token = await asyncio.to_thread(ours.recv)
            await calls(served_at, token, url)
        finally:
            ours.send("stop")
            process.join(20)


if __name__ == "__main__":
    asyncio.run(run())
