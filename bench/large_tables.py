"""What do lists, views, cancellation and deletion cost beside large tables? In ms, and as a ratio.

One task group has N unfinished tasks, N results and N neighbours that have settled; another user has a
group of 100 tasks. Each row is a call of the product, the median of several; a chunk has 500 rows. The
ratio compares the largest N with the least.

    .venv/bin/python -m bench.large_tables [--tasks 10000 1000000]     (10000000: long, 10 GB)
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
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
REPEATS = 15
FILL: tuple[LiteralString, ...] = (
    'INSERT INTO task (id, group_id, spec) SELECT i, %(big)s, \'{"command": ["true"]}\''
    " FROM generate_series(1000000, 999999 + 2 * %(n)s) AS i",
    "INSERT INTO open_task (group_id, id, priority, state, epoch, claim_seq, started_at, not_before)"
    " SELECT %(big)s, 1000000 + i, 0, CASE WHEN i < 100 THEN 1 WHEN i < 200 THEN 4 ELSE 0 END,"
    " CASE WHEN i < 100 THEN 1 END, CASE WHEN i < 100 THEN 1 END, CASE WHEN i < 100 THEN now() END,"
    " CASE WHEN i BETWEEN 100 AND 199 THEN now() + interval '1 day' END"
    " FROM generate_series(0, %(n)s - 1) AS i",
    "INSERT INTO task_result (task_id, group_id, seq, state, attempt)"
    " SELECT 1000000 + %(n)s + i, %(big)s, i + 1, 'cancelled', 0 FROM generate_series(0, %(n)s - 1) AS i",
    "UPDATE group_live SET total = 2 * %(n)s, unfinished = %(n)s, cancelled = %(n)s, state = 'cancelled',"
    " terminal_at = now(), discarding = true, cancelled_before = 0 WHERE group_id = %(big)s",
    "INSERT INTO task_groups (name, user_group_id, creator_id, worker_allocation_plan)"
    " SELECT 'g' || i, g.user_group_id, g.creator_id, g.worker_allocation_plan"
    " FROM generate_series(1, %(n)s) AS i, task_groups AS g WHERE g.id = %(big)s",
    "INSERT INTO group_live (group_id, state, terminal_at, settled_at, result)"
    " SELECT id, 'complete', now(), now(), 'success' FROM task_groups WHERE name ~ '^g[0-9]'",
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


async def median_ms(call: Call, repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        await call()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[1:] or times)


async def measure(tasks: int) -> Mapping[str, float]:
    async with (
        scratch_database() as url,
        Store.open(StoreOptions(database_url=url, listens=False)) as store,
    ):
        admin, bob = (await ensure_admin(store, "admin")).user_id, await create_user(store, "bob")
        big = await group_of(store, admin, "big")
        async with store.database.connection() as connection:
            await connection.execute("SET statement_timeout = 0")
            for statement in FILL:
                await connection.execute(statement, {"big": 1, "n": tasks})
            await connection.execute("SET statement_timeout = '15s'")
        small = await group_of(store, bob.user_id, "small")
        found = {
            name: await median_ms(call)
            for name, call in calls(store, big, small, admin, bob.user_id).items()
        }
        others = [await group_of(store, bob.user_id, f"other-{i}") for i in range(REPEATS)]

        async def cancel() -> None:
            request = VerbRequest(task_group_id=others.pop(), verb=Cancel())
            await apply(store, request)

        found["cancel of another group"] = await median_ms(cancel)
        async with store.database.connection() as connection:
            await connection.execute("INSERT INTO deleted_groups VALUES (1, gen_random_uuid(), 1)")
        found["chunk of the deletion"] = await median_ms(lambda: delete_chunk(store, CHUNK))
        return found


async def main(sizes: list[int]) -> None:
    measured = [await measure(size) for size in sizes]
    print("| call | " + " | ".join(f"{size:,}" for size in sizes) + " | ratio |")
    print("|---|" + "---|" * (len(sizes) + 1))
    for name in measured[0]:
        times = [one[name] for one in measured]
        print(
            f"| {name} | {' | '.join(f'{ms:.1f}' for ms in times)} | {times[-1] / times[0]:.2f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000, 1_000_000])
    asyncio.run(main(parser.parse_args().tasks))
