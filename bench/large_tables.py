"""What do lists, views, cancellation and deletion cost beside large tables? In ms, and as a ratio.

One task group has N unfinished tasks, N results and N / 10 neighbours that have settled; another user has a
group of 100 tasks. Each row is a call of the product, the median of several; a chunk has 500 rows. Each
N has a server of its own, and they are called in turns. The ratio compares the last N with the first.

    .venv/bin/python -m bench.large_tables [--tasks 10000 1000000]     (10000000: long, 15 GB)
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from bench.scratch_database import scratch_database
from mitosis.contracts.control import Cancel, VerbRequest
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import ListedState, TaskGroupState
from mitosis.contracts.task import SubmittedTask, TaskSubmission
from mitosis.contracts.wire import SubmitTasks
from mitosis.store.groups.definition import create_group
from mitosis.store.groups.deletion import delete_chunk
from mitosis.store.groups.endings import apply, discard_chunk
from mitosis.store.groups.views import GroupFilter, cancel_stats, list_groups, read_group
from mitosis.store.store import Store, StoreOptions
from mitosis.store.tasks.submit import submit_tasks
from mitosis.store.tasks.views import list_tasks
from mitosis.store.users.accounts import create_user, ensure_admin

CHUNK = 500
REPEATS = 19
WHILE_FILLED = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_wal_size": "8GB",
}
FILL: tuple[tuple[LiteralString, ...], ...] = (
    (
        'INSERT INTO task (id, group_id, spec) SELECT i, %(big)s, \'{"command": ["true"]}\''
        " FROM generate_series(1000000, 999999 + 2 * %(n)s) AS i",
    ),
    (
        "INSERT INTO open_task (group_id, id, priority, state, epoch, claim_seq, started_at, not_before)"
        " SELECT %(big)s, 1000000 + i, 0, CASE WHEN i < 100 THEN 1 WHEN i < 200 THEN 4 ELSE 0 END,"
        " CASE WHEN i < 100 THEN 1 END, CASE WHEN i < 100 THEN 1 END, CASE WHEN i < 100 THEN now() END,"
        " CASE WHEN i BETWEEN 100 AND 199 THEN now() + interval '1 day' END"
        " FROM generate_series(0, %(n)s - 1) AS i",
    ),
    (
        "INSERT INTO task_result (task_id, group_id, seq, state, attempt)"
        " SELECT 1000000 + %(n)s + i, %(big)s, i + 1, 'cancelled', 0 FROM generate_series(0, %(n)s - 1) AS i",
    ),
    (
        "UPDATE group_live SET total = 2 * %(n)s, unfinished = %(n)s, cancelled = %(n)s, state = 'cancelled',"
        " terminal_at = now(), discarding = true, cancelled_before = 0 WHERE group_id = %(big)s",
    ),
    (
        "INSERT INTO task_groups (name, user_group_id, creator_id, worker_allocation_plan)"
        " SELECT 'g' || i, g.user_group_id, g.creator_id, g.worker_allocation_plan"
        " FROM generate_series(1, %(n)s / 10) AS i, task_groups AS g WHERE g.id = %(big)s",
        "INSERT INTO group_live (group_id, state, terminal_at, settled_at, result)"
        " SELECT id, 'complete', now(), now(), 'success' FROM task_groups WHERE name ~ '^g[0-9]'",
    ),
)
Call = Callable[[], Awaitable[object]]


async def group_of(store: Store, owner: UUID, name: str) -> UUID:
    """Make a task group with 100 tasks."""
    made = await create_group(store, TaskGroupSpec(name=name), owner)
    tasks: list[SubmittedTask] = [TaskSubmission(command=["true"]) for _ in range(100)]
    await submit_tasks(store, made.task_group_id, SubmitTasks(tasks=tasks))
    return made.task_group_id


def calls(store: Store, big: UUID, small: UUID, admin: UUID, bob: UUID) -> Mapping[str, Call]:
    """Return what is measured, by name."""
    found: dict[str, Call] = {}
    for state in ListedState:
        found[f"tasks, {state.value}"] = lambda s=state: list_tasks(store, big, state=s)  # type: ignore[misc]
    for name, viewer in (("administrator", admin), ("another user", bob)):
        for what, which in (
            ("all", GroupFilter()),
            ("open", GroupFilter(states=[TaskGroupState.OPEN])),
            ("unsettled", GroupFilter(settled=False)),
        ):
            found[f"groups, {what}, {name}"] = (
                lambda v=viewer, w=which: list_groups(store, v, w)  # type: ignore[misc]
            )
    return {
        **found,
        "view, cancelled group": lambda: read_group(store, big),
        "cancel_stats, cancelled group": lambda: cancel_stats(store, big),
        "view, another group": lambda: read_group(store, small),
        "cancel_stats, another group": lambda: cancel_stats(store, small),
        "chunk of the cancellation": lambda: discard_chunk(store, big, CHUNK),
    }


@dataclass
class Tables:
    """One size: a store over tables with so many tasks, and the calls that are measured on them."""

    store: Store
    calls: dict[str, Call]


async def fill(store: Store, statements: Sequence[LiteralString], tasks: int) -> None:
    """Write the rows of one table and of what refers to them, without triggers and foreign keys."""
    async with store.database.connection() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute("SET session_replication_role = replica")
        for statement in statements:
            await connection.execute(statement, {"big": 1, "n": tasks})
        await connection.execute("RESET session_replication_role")
        await connection.execute("SET statement_timeout = '15s'")


@asynccontextmanager
async def filled(tasks: int) -> AsyncIterator[Tables]:
    """Fill a database of its own; what the calls find does not depend on how it was filled."""
    async with (
        scratch_database(**WHILE_FILLED) as url,
        Store.open(StoreOptions(database_url=url, listens=False)) as store,
    ):
        admin, bob = (await ensure_admin(store, "admin")).user_id, await create_user(store, "bob")
        big = await group_of(store, admin, "big")
        await asyncio.gather(*(fill(store, table, tasks) for table in FILL))
        await fill(store, ["ANALYZE"], tasks)
        small = await group_of(store, bob.user_id, "small")
        found = dict(calls(store, big, small, admin, bob.user_id))
        others = [await group_of(store, bob.user_id, f"other-{i}") for i in range(REPEATS)]

        async def cancel() -> None:
            request = VerbRequest(task_group_id=others.pop(), verb=Cancel())
            await apply(store, request)

        found["cancel of another group"] = cancel
        yield Tables(store, found)


async def delete_big(tables: Tables) -> None:
    """Let the chunks of the deletion begin; the last of all calls, as it ends the large group."""
    async with tables.store.database.connection() as connection:
        await connection.execute("INSERT INTO deleted_groups VALUES (1, gen_random_uuid(), 1)")
    tables.calls["chunk of the deletion"] = lambda: delete_chunk(tables.store, CHUNK)


async def medians_ms(name: str, sizes: Sequence[Tables]) -> list[float]:
    """Call each size in turns, so that what else the machine does slows all of them; medians in ms."""
    times: list[list[float]] = [[] for _ in sizes]
    for _ in range(REPEATS):
        for tables, of_size in zip(sizes, times, strict=True):
            began = time.perf_counter()
            await tables.calls[name]()
            of_size.append(1000 * (time.perf_counter() - began))
    return [statistics.median(of_size[1:]) for of_size in times]


def row(name: str, medians: Sequence[float]) -> str:
    shown = " | ".join(f"{ms:.1f}" for ms in medians)
    return f"| {name} | {shown} | {medians[-1] / medians[0]:.2f} |"


async def main(sizes: list[int]) -> None:
    async with AsyncExitStack() as exits:
        tables = []
        for size in sizes:
            began = time.perf_counter()
            tables.append(await exits.enter_async_context(filled(size)))
            print(f"{size:,} tasks filled in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        print("| call | " + " | ".join(f"{size:,}" for size in sizes) + " | ratio |")
        print("|---|" + "---|" * (len(sizes) + 1))
        for name in list(tables[0].calls):
            print(row(name, await medians_ms(name, tables)), flush=True)
        for one in tables:
            await delete_big(one)
        print(row("chunk of the deletion", await medians_ms("chunk of the deletion", tables)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000, 1_000_000])
    asyncio.run(main(parser.parse_args().tasks))
