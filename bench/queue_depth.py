"""What do claim, report and submit cost as the queue grows? In ms of PostgreSQL and this process.

Each depth is a database of its own that has never been analysed: the statistics of a queue are always
those of another moment. The second line of a depth is measured after ANALYZE. `claim` and `report` move
256 tasks, `one` of them a single one, `submit` adds 256. Least of several calls. The last rows divide the
deepest queue by the shallowest.

    .venv/bin/python -m bench.queue_depth [--depths 10000 1000000]
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import LiteralString
from uuid import UUID

from bench.assign_round import GROUPS, HOSTS, IN_CONTACT
from bench.scratch_database import scratch_database
from mitosis.contracts.task import SubmittedTask
from mitosis.contracts.wire import ClaimTasks, Outcome, ReportTasks, SubmitTasks, TaskReport
from mitosis.store.pg.database import Database
from mitosis.store.store import QueueLimits, Store
from mitosis.store.tasks.claim import claim_tasks
from mitosis.store.tasks.report import report_tasks
from mitosis.store.tasks.submit import submit_tasks

LEASED: LiteralString = """
WITH leased AS (
    INSERT INTO leases (group_id, manager_id, state, taken_at, alive_until, last_claim_at)
    SELECT g.id, m.id, 'active', now(), now() + interval '1 day', now() FROM task_groups AS g, managers AS m
    RETURNING epoch, manager_id, group_id
), ready AS (
    INSERT INTO environments (manager_id, group_id, state, fingerprint)
    SELECT manager_id, group_id, 'ready', '' FROM leased
)
SELECT l.epoch, m.uuid AS host, g.uuid AS task_group
  FROM leased AS l JOIN managers AS m ON m.id = l.manager_id JOIN task_groups AS g ON g.id = l.group_id
"""
PAYLOADS: LiteralString = """
INSERT INTO task (id, group_id, spec) SELECT id, group_id, '{"command": ["true"]}' FROM open_task
"""
NEVER_ANALYSED: Sequence[LiteralString] = (
    "ALTER TABLE open_task SET (autovacuum_enabled = off)",
    "ALTER TABLE task SET (autovacuum_enabled = off)",
    "ALTER TABLE task_result SET (autovacuum_enabled = off)",
)
NO_LIMITS = QueueLimits(10**9, 10**9, 10**9)
KINDS = ("stale", "fresh")
BATCH = 256
ROUNDS = 12


class Queue:
    """A host with a lease for one task group of many tasks."""

    def __init__(self, store: Store, epoch: int, host: UUID, task_group: UUID) -> None:
        self._store = store
        self._epoch, self._host, self._task_group = epoch, host, task_group
        self._sequence = 0
        self._claimed: list[TaskReport] = []

    async def claim(self, count: int) -> None:
        self._sequence += 1
        request = ClaimTasks(
            epoch=self._epoch,
            claim_seq=self._sequence,
            acked_seq=self._sequence - 1,
            max_tasks=count,
        )
        answer = await claim_tasks(self._store, self._host, request)
        assert len(answer.tasks) == count
        now = time.time()
        self._claimed = [
            TaskReport(
                task_id=task.task_id,
                attempt=task.attempt,
                outcome=Outcome.SUCCEEDED,
                exit_code=0,
                started_at=now,
                finished_at=now,
            )
            for task in answer.tasks
        ]

    async def report(self) -> None:
        request = ReportTasks(epoch=self._epoch, reports=self._claimed)
        answer = await report_tasks(self._store, self._host, request)
        assert {str(status) for status in answer.statuses} == {"committed"}

    async def submit(self, count: int) -> None:
        request = SubmitTasks(tasks=[SubmittedTask(command=["true"])] * count)
        await submit_tasks(self._store, self._task_group, request)


async def milliseconds(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1e3


async def one_round(queue: Queue) -> Mapping[str, float]:
    return {
        "claim": await milliseconds(lambda: queue.claim(BATCH)),
        "report": await milliseconds(queue.report),
        "submit": await milliseconds(lambda: queue.submit(BATCH)),
        "claim one": await milliseconds(lambda: queue.claim(1)),
        "report one": await milliseconds(queue.report),
        "submit one": await milliseconds(lambda: queue.submit(1)),
    }


async def costs(queue: Queue) -> Mapping[str, float]:
    """Return the least time of each operation; the first rounds make PostgreSQL plan the statements."""
    rounds = [await one_round(queue) for _ in range(ROUNDS)]
    return {name: min(round_[name] for round_ in rounds) for name in rounds[0]}


async def measure(url: str, depth: int) -> Sequence[Mapping[str, float]]:
    """Return the costs without statistics, and with fresh ones."""
    async with Database.open(url) as database:

        async def execute(statement: LiteralString, **values: object) -> list[Mapping[str, object]]:
            async with database.transaction() as connection:
                await connection.execute("SET LOCAL statement_timeout = 0")
                cursor = await connection.execute(statement, values or None)
                return list(await cursor.fetchall()) if cursor.description else []

        for statement in NEVER_ANALYSED:
            await execute(statement)
        await execute("INSERT INTO users (username) VALUES ('bench')")
        await execute("INSERT INTO user_groups (name, creator_id) SELECT 'bench', id FROM users")
        await execute(HOSTS, count=1)
        await execute("ANALYZE")  # of an empty queue
        await execute(GROUPS, name="g", tags=[], count=1, tasks=depth, most=None)
        await execute(IN_CONTACT)
        (leased,) = await execute(LEASED)
        await execute(PAYLOADS)
        queue = Queue(Store(database=database, queue_limits=NO_LIMITS), **leased)  # type: ignore[arg-type]
        stale = await costs(queue)
        await execute("ANALYZE")
        return stale, await costs(queue)


async def run(depths: list[int]) -> None:
    found = []
    for depth in depths:
        async with scratch_database() as url:
            found.append(await measure(url, depth))
        if len(found) == 1:
            print(f"{'queued':>18} " + " ".join(f"{name:>11}" for name in found[0][0]))
        for kind, spent in zip(KINDS, found[-1], strict=True):
            print(f"{depth:>10,} {kind:>7} " + " ".join(f"{ms:>11.2f}" for ms in spent.values()))
    for kind, first, last in zip(KINDS, found[0], found[-1], strict=True):
        ratios = [last[name] / first[name] for name in first]
        print(f"{'ratio':>10} {kind:>7} " + " ".join(f"{ratio:>11.2f}" for ratio in ratios))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--depths", type=int, nargs="+", default=[10_000, 1_000_000])
    asyncio.run(run(parser.parse_args().depths))


if __name__ == "__main__":
    main()
