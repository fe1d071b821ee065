"""What do the calls of 10,000 worker services cost? p50 and p99 in ms, beside a bare SELECT 1.

Each service supports some of 1,000 named tasks; every row is measured with one call at a time, the floor on
a connection of the same pool. S004-62 to S004-64 demand 10 ms for a selection, 50 ms for a registration
and 5 ms for a heartbeat.

    .venv/bin/python -m bench.worker_registry [--services 10000] [--tasks 1000] [--calls 1000]
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import LiteralString
from uuid import UUID

from bench.scratch_database import scratch_database
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.service_tasks import (
    ClaimNamedTasks,
    NamedTaskAttempt,
    NamedTaskReport,
    ReportNamedTasks,
)
from mitosis.contracts.task import SubmittedTask, TaskSubmission
from mitosis.contracts.wire import Outcome, SubmitTasks
from mitosis.contracts.worker_services import RegisterWorker, SupportedTask
from mitosis.store.groups.definition import create_group
from mitosis.store.leases.silent_services import end_silent_registrations
from mitosis.store.pg.database import Database
from mitosis.store.registry.figures import registry_figures
from mitosis.store.registry.selection import (
    NamedTask,
    find_available_worker,
    list_workers_for_task,
)
from mitosis.store.registry.views import list_named_tasks
from mitosis.store.services.claim import claim_named_tasks
from mitosis.store.services.contact import record_heartbeat
from mitosis.store.services.registration import register_worker
from mitosis.store.services.report import report_named_tasks
from mitosis.store.store import Store
from mitosis.store.tasks.submit import submit_tasks
from mitosis.store.users.accounts import create_user

FILLED: tuple[LiteralString, ...] = (
    """
    INSERT INTO named_tasks (user_group_id, namespace, name, version)
    SELECT g.id, 'n' || n %% 10, 't' || n, '1' FROM user_groups AS g, generate_series(0, %(tasks)s - 1) AS n
    """,
    """
    INSERT INTO worker_services (worker_id, creator_id, incarnation)
    SELECT 's' || n, u.id, 1 FROM users AS u, generate_series(0, %(services)s - 1) AS n
    """,
    """
    INSERT INTO user_group_workers SELECT g.id, s.id, 'write' FROM user_groups AS g, worker_services AS s
    """,
    """
    INSERT INTO worker_named_tasks (service_id, named_task_id, configuration, priority)
    SELECT s.id, n.id, '{"size": 4}', 100 + s.id %% 3
      FROM worker_services AS s
      JOIN named_tasks AS n ON n.id %% %(tasks)s IN ((s.id * 7) %% %(tasks)s, (s.id * 13 + 1) %% %(tasks)s, 0)
    """,
    """
    INSERT INTO worker_registrations
        (service_id, incarnation, connection_type, last_heartbeat_at, alive_until)
    SELECT s.id, 1, 'pull', now() + interval '1 h' * random(), now() + interval '1 h'
      FROM worker_services AS s
    """,
)
ANALYZE: LiteralString = "VACUUM ANALYZE"


async def measured(name: str, calls: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Print p50 and p99 of ``calls`` calls, after some that are not counted."""
    spent = []
    for n in range(-20, calls):
        began = time.perf_counter()
        await call(n)
        if n >= 0:
            spent.append((time.perf_counter() - began) * 1e3)
    cuts = statistics.quantiles(spent, n=100)
    print(f"{name:<52} {cuts[49]:>8.2f} {cuts[98]:>8.2f}", flush=True)


async def measure(store: Store, user_id: UUID, services: int, tasks: int, calls: int) -> None:
    chosen = random.Random(1)  # noqa: S311 - the same calls in every run
    async with store.database.connection() as connection:
        rows = await (
            await connection.execute("SELECT uuid FROM worker_services ORDER BY id")
        ).fetchall()
    workers = [row["uuid"] for row in rows]

    async def floor(_: int) -> None:
        async with store.database.connection() as connection:
            await (await connection.execute("SELECT 1")).fetchone()

    async def find(_: int) -> None:
        n = chosen.randrange(1, tasks)
        await find_available_worker(store, named(n))

    async def find_busy(_: int) -> None:
        await find_available_worker(store, named(tasks - 1))

    async def list_all(_: int) -> None:
        await list_workers_for_task(store, named(chosen.randrange(0, tasks - 1)))

    async def beat(_: int) -> None:
        await record_heartbeat(store, chosen.choice(workers), 1)

    async def register(n: int) -> None:
        supported = tuple(
            SupportedTask(namespace=f"n{i % 10}", name=f"t{i}", version="1", configuration={"n": n})
            for i in range(10)
        )
        worker_id = f"new{n % 50}"
        spec = RegisterWorker(worker_id=worker_id, supported_tasks=supported)
        await register_worker(store, spec, user_id)

    print(f"{services:,} worker services, {tasks:,} named tasks: ms{'p50':>24} {'p99':>8}")
    await measured("floor: SELECT 1", calls, floor)
    await measured("find_available_worker", calls, find)
    await measured("find_available_worker, all services support it", calls // 10, find_busy)
    await measured("list_workers_for_task", calls, list_all)
    await measured("heartbeat", calls, beat)
    await measured("registration with 10 named tasks", calls // 4, register)
    await measure_claims(store, user_id, workers, tasks, calls)
    await measured("gaps of all named tasks, one page", 10, lambda _: gaps(store, user_id))
    await measured("figures for metrics", 20, lambda _: registry_figures(store, user_id))
    await measured(
        "end of silent registrations, none", 20, lambda _: end_silent_registrations(store)
    )
    await measured("floor: SELECT 1", calls, floor)


async def measure_claims(
    store: Store, user_id: UUID, workers: Sequence[UUID], tasks: int, calls: int
) -> None:
    """Claims and reports in one group with 20 tasks of each named task, then with 10,000 more of one."""
    held: dict[int, Sequence[NamedTaskAttempt]] = {}

    async def claim(n: int) -> None:
        held[n] = await claim_one(store, workers[n % len(workers)])

    async def report(n: int) -> None:
        await report_all(store, workers[n % len(workers)], held[n])

    group = await service_group(store, user_id)
    await measured("claim of a service, nothing is ready", calls, claim)
    await submit(store, group, [f"n{n % 10}/t{n}@1" for n in range(tasks)] * 20)
    await measured("claim of one of 20 tasks of each named task", calls, claim)
    await measured("report of one", calls, report)
    await submit(store, group, [f"n{(tasks - 1) % 10}/t{tasks - 1}@1"] * 10_000)
    await measured("claim, all services support it", calls, claim)


async def service_group(store: Store, user_id: UUID) -> UUID:
    spec = TaskGroupSpec(name="work", kind="service", group_name="bench")
    return (await create_group(store, spec, user_id)).task_group_id


async def submit(store: Store, group: UUID, names: Sequence[str]) -> None:
    for start in range(0, len(names), 10_000):
        tasks: list[SubmittedTask] = [
            TaskSubmission(named_task=name) for name in names[start : start + 10_000]
        ]
        await submit_tasks(store, group, SubmitTasks(tasks=tasks))
    async with store.database.connection() as connection:
        await connection.execute(ANALYZE)


async def claim_one(store: Store, worker: UUID) -> Sequence[NamedTaskAttempt]:
    return (await claim_named_tasks(store, worker, ClaimNamedTasks(incarnation=1))).tasks


async def report_all(store: Store, worker: UUID, given: Sequence[NamedTaskAttempt]) -> None:
    reports = [
        NamedTaskReport(task_id=one.task_id, attempt=one.attempt, outcome=Outcome.SUCCEEDED)
        for one in given
    ]
    await report_named_tasks(store, worker, ReportNamedTasks(incarnation=1, reports=reports))


async def gaps(store: Store, user_id: UUID) -> None:
    await list_named_tasks(store, user_id, available="none", limit=500)


def named(number: int) -> NamedTask:
    return NamedTask("bench", f"n{number % 10}", f"t{number}", "1")


async def run(services: int, tasks: int, calls: int) -> None:
    async with scratch_database() as url, Database.open(url) as database:
        store = Store(database=database)
        user = await create_user(store, "bench")
        async with database.connection() as connection:
            for statement in FILLED:
                await connection.execute(statement, {"services": services, "tasks": tasks})
            await connection.execute(ANALYZE)
        await measure(store, user.user_id, services, tasks, calls)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--calls", type=int, default=1_000)
    given = parser.parse_args()
    asyncio.run(run(given.services, given.tasks, given.calls))


if __name__ == "__main__":
    main()
