"""What do the triggers cost that mark hosts whose facts have changed (ADR 0013)?

Whole calls of the store, on one connection: the CPU time of its PostgreSQL process and of this one. Blocks
with and without the triggers take turns, in the order on, off, off, on, and each block is compared with the
one beside it. The verdict is about the median of these differences, against the limit of 2 %. Quiet machine,
less than 3 minutes:

    .venv/bin/python -m bench.host_marks [--hosts 500] [--blocks 40] [--calls 100]
"""

import argparse
import asyncio
import itertools
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString, NamedTuple
from uuid import UUID

from psycopg import sql

from bench.assign_round import GROUPS, HOSTS, TAKEN
from bench.scratch_database import scratch_database
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import (
    ClaimTasks,
    Outcome,
    Renewal,
    ReportTasks,
    SubmitTasks,
    TaskAttempt,
    TaskReport,
)
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import renew
from mitosis.store.pg.database import Database
from mitosis.store.store import Store
from mitosis.store.tasks.claim import claim_tasks
from mitosis.store.tasks.report import report_tasks
from mitosis.store.tasks.submit import submit_tasks

TRIGGERS: LiteralString = (
    "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE tgname LIKE '%_changes_hosts'"
)
LEASES: LiteralString = """
SELECT m.uuid, l.epoch FROM managers AS m LEFT JOIN leases AS l ON l.manager_id = m.id ORDER BY m.id
"""
LIMIT = 0.02
"""So much more a call may cost."""
NOT_COUNTED = 25
"""Calls after a change of the triggers: their statements are planned again."""


@dataclass
class Host:
    """A host with its lease, and what it has claimed."""

    manager_id: UUID
    epoch: int
    claim_seq: int = 0


class Calls:
    """What an agent asks for: each call is of the next host."""

    def __init__(self, store: Store, hosts: Sequence[Host]) -> None:
        self._store = store
        self._hosts: Iterator[Host] = itertools.cycle(hosts)

    async def heartbeat(self) -> None:
        """Renew without a lease."""
        await renew(self._store, next(self._hosts).manager_id, Renewal(incarnation=0))

    async def renewal(self) -> None:
        """Renew a lease."""
        host = next(self._hosts)
        await renew(self._store, host.manager_id, Renewal(incarnation=0, epoch=host.epoch))

    async def task(self) -> None:
        """Claim a task, say that it has started, and report it."""
        host = next(self._hosts)
        host.claim_seq += 1
        claim = ClaimTasks(
            epoch=host.epoch,
            claim_seq=host.claim_seq,
            acked_seq=host.claim_seq - 1,
            max_tasks=1,
            wait_seconds=0.0,
        )
        (task,) = (await claim_tasks(self._store, host.manager_id, claim)).tasks
        attempt = TaskAttempt(task_id=task.task_id, attempt=task.attempt)
        renewal = Renewal(incarnation=0, epoch=host.epoch, started=[attempt])
        await renew(self._store, host.manager_id, renewal)
        report = TaskReport(task_id=task.task_id, attempt=task.attempt, outcome=Outcome.SUCCEEDED)
        await report_tasks(
            self._store, host.manager_id, ReportTasks(epoch=host.epoch, reports=[report])
        )


class Bench:
    """One connection, its server process, and the triggers."""

    def __init__(self, database: Database, server: int) -> None:
        self._database = database
        self._server = server

    def used(self) -> float:
        """Return the CPU time of both processes so far, in seconds."""
        nanoseconds = int(Path(f"/proc/{self._server}/schedstat").read_text().split()[0])
        return nanoseconds / 1e9 + time.process_time()

    async def switch(self, *, on: bool) -> None:
        """Let the triggers fire, or not."""
        async with self._database.transaction() as connection:
            rows = await (await connection.execute(TRIGGERS)).fetchall()
            for row in rows:
                names = (sql.Identifier(row["tgrelid"]), sql.Identifier(row["tgname"]))
                verb = sql.SQL("ENABLE" if on else "DISABLE")
                statement = sql.SQL("ALTER TABLE {} {} TRIGGER {}").format(names[0], verb, names[1])
                await connection.execute(statement)

    async def block(self, call: Callable[[], Awaitable[None]], calls: int) -> float:
        """Return the seconds of CPU time for one call."""
        for _ in range(NOT_COUNTED):
            await call()
        before = self.used()
        for _ in range(calls):
            await call()
        return (self.used() - before) / calls


class Interval(NamedTuple):
    """Between these the median lies, with a probability of 95 %."""

    low: float
    median: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """Return the interval of the median, by the order of the values: no distribution is assumed.

    Source: the sign test. The number of values below the median is binomial.
    """
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < count // 2:
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 0.05:
            break
        rank += 1
    low = max(rank - 1, 0)
    return Interval(ordered[low], statistics.median(ordered), ordered[count - 1 - low])


def verdict(more: Interval) -> str:
    """Return what the interval says about the limit."""
    if more.high < LIMIT:
        return f"below {LIMIT:.0%}"
    return f"above {LIMIT:.0%}" if more.low > LIMIT else "not decided: too much noise"


async def compare(
    bench: Bench, name: str, call: Callable[[], Awaitable[None]], blocks: int, calls: int
) -> None:
    """Print what one kind of call costs without the triggers, how much more with them, and the verdict."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for number in range(blocks):
        for on in (True, False) if number % 2 == 0 else (False, True):
            await bench.switch(on=on)
            spent[on].append(await bench.block(call, calls))
    base, least = min(spent[False]), min(spent[True]) - min(spent[False])
    pairs = zip(spent[True], spent[False], strict=True)
    more = interval([(on - off) / off for on, off in pairs])
    print(
        f"{name:<26} {base * 1e6:>8.0f} {least * 1e6:>+8.1f} {more.median:>+7.2%}"
        f" {more.low:>+8.2%} to {more.high:+.2%}  {verdict(more)}",
        flush=True,
    )


async def measure(url: str, hosts: int, blocks: int, calls: int) -> None:
    async with Database.open(url, pool_size=1) as database:
        store = Store(database=database)

        async def execute(statement: LiteralString, **values: object) -> list[dict[str, object]]:
            async with database.transaction() as connection:
                cursor = await connection.execute(statement, values or None)
                return await cursor.fetchall() if cursor.description else []

        await execute("INSERT INTO users (username) VALUES ('bench')")
        await execute("INSERT INTO user_groups (name, creator_id) SELECT 'bench', id FROM users")
        await execute(HOSTS, count=2 * hosts)
        tasks = 2 * blocks * (calls + NOT_COUNTED) + 16 * hosts
        await execute(GROUPS, name="one", tags=[], count=1, tasks=0, most=hosts)
        (group,) = await execute("SELECT uuid FROM task_groups")
        for first in range(0, tasks, 5000):
            part = [TaskSubmission(command=["true"])] * min(5000, tasks - first)
            await submit_tasks(store, UUID(str(group["uuid"])), SubmitTasks(tasks=[*part]))
        while (await assign_round(store)).offered:
            pass
        await execute(TAKEN)
        await execute("ANALYZE")
        (row,) = await execute("SELECT pg_backend_pid() AS pid")
        bench = Bench(database, int(str(row["pid"])))
        rows = await execute(LEASES)
        free = [Host(UUID(str(one["uuid"])), 0) for one in rows if one["epoch"] is None]
        held = [
            Host(UUID(str(one["uuid"])), int(str(one["epoch"]))) for one in rows if one["epoch"]
        ]
        print(
            f"{'call':<26} {'off, µs':>8} {'least':>8} {'more':>7} {'(95 % of pairs of blocks)':>8}"
        )
        await compare(
            bench, "heartbeat without a lease", Calls(store, free).heartbeat, blocks, calls
        )
        await compare(bench, "renewal of a lease", Calls(store, held).renewal, blocks, calls)
        await compare(bench, "claim, start and report", Calls(store, held).task, blocks, calls)


async def run(hosts: int, blocks: int, calls: int) -> None:
    async with scratch_database() as url:
        await measure(url, hosts, blocks, calls)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--calls", type=int, default=100)
    chosen = parser.parse_args()
    asyncio.run(run(chosen.hosts, chosen.blocks, chosen.calls))


if __name__ == "__main__":
    main()
