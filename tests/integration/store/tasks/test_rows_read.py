"""What PostgreSQL does for a batch of tasks grows with the batch: not with its square, nor with the queue.

The statistics of a queue are always those of another moment; here they are those of an empty one.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest

from mitosis.contracts.task import TaskSubmission
from mitosis.store.dependencies.resolve import resolve_all
from mitosis.store.pg import database as pg
from mitosis.store.pg.timing import statement_name
from tests.support.campaigns import failed, succeeded, world

EXPLAINED = (
    " -c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0"
    " -c auto_explain.log_analyze=on -c auto_explain.log_timing=off -c auto_explain.log_format=json"
    " -c client_min_messages=log"
)
QUEUED = 2_000
BATCH = 200
ROWS_PER_TASK = 4
"""Of one step. The largest of them orders what a batch may take from."""

pytestmark = pytest.mark.new_sessions


class Plans:
    """The plans of the statements that one connection has executed, with what each step has read."""

    def __init__(self) -> None:
        self._plans: list[Mapping[str, Any]] = []

    def add(self, notice: psycopg.errors.Diagnostic) -> None:
        _, _, plan = (notice.message_primary or "").partition("plan:")
        if plan:
            self._plans.append(json.loads(plan))

    def take(self, name: str) -> Mapping[str, Any]:
        """Return the plan of the last execution of a statement, and forget all."""
        found = [plan for plan in self._plans if statement_name(plan["Query Text"]) == name]
        self._plans.clear()
        return found[-1]["Plan"]  # type: ignore[no-any-return]


def steps(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from steps(inner)


def most_rows(plan: Mapping[str, Any]) -> float:
    """Return how many rows the busiest step has returned, compared or filtered."""
    return max(map(rows_of, steps(plan)))


def rows_of(step: Mapping[str, Any]) -> float:
    read = ("Actual Rows", "Rows Removed by Join Filter", "Rows Removed by Filter")
    return float(sum(step.get(name, 0) for name in read) * step["Actual Loops"])


OTHERS = """
WITH groups AS (
    INSERT INTO task_groups (name, user_group_id, creator_id, worker_allocation_plan)
    SELECT 'other' || n, g.id, g.creator_id, '{"worker_count": 1}'
      FROM user_groups AS g, generate_series(1, 3000) AS n RETURNING id
), live AS (
    INSERT INTO group_live (group_id, state, closed_at, terminal_at, settled_at, result, total, unfinished,
                            succeeded)
    SELECT id, 'complete', now(), now(), now(), 'success', 3, 0, 3 FROM groups
), tasks AS (
    INSERT INTO task (id, group_id, spec)
    SELECT nextval('task_id'), id, '{}' FROM groups, generate_series(1, 3) RETURNING id, group_id
)
INSERT INTO task_result (task_id, group_id, seq, state, attempt, finished_at)
SELECT id, group_id, row_number() OVER (PARTITION BY group_id), 'succeeded', 1, now() FROM tasks
"""
"""Settled task groups of others, each with three results."""


@pytest.fixture(autouse=True)
def explaining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg, "LIMITS", pg.LIMITS + EXPLAINED)


@pytest.mark.parametrize("outcome", [succeeded, failed])
async def test_a_large_batch_after_small_ones_costs_what_its_tasks_cost(
    database: str, outcome: Any
) -> None:
    plans = Plans()
    async with world(database, pool_size=1) as w:
        async with w.database.connection() as connection:
            connection.add_notice_handler(plans.add)
        await w.rows(OTHERS)
        group = await w.group()
        await w.submit(group)
        host = await w.leased_host(group)
        for _ in range(12):  # PostgreSQL has chosen the plans that it keeps
            await host.report(*map(outcome, (await host.claim(1)).tasks))
            await w.submit(group)
        await w.submit(group, QUEUED)
        plans.take("tasks/report.sql report")

        tasks = (await host.claim(BATCH)).tasks
        assert len(tasks) == BATCH
        assert most_rows(plans.take("tasks/claim.sql claim")) <= ROWS_PER_TASK * BATCH

        await host.report(*map(outcome, tasks))
        assert most_rows(plans.take("tasks/report.sql report")) <= ROWS_PER_TASK * BATCH

        await w.submit(group, BATCH)
        assert most_rows(plans.take("tasks/submit.sql submit")) <= ROWS_PER_TASK * BATCH


@pytest.mark.parametrize(
    ("wide", "outcome"), [("in", succeeded), ("out", succeeded), ("out", failed)]
)
async def test_many_edges_after_few_are_resolved_by_what_they_are(
    database: str, wide: str, outcome: Any
) -> None:
    plans = Plans()
    async with world(database, pool_size=1) as w:
        async with w.database.connection() as connection:
            connection.add_notice_handler(plans.add)
        await w.rows(OTHERS)
        before, group = await w.group("before"), await w.group()
        chain = [dependent(*([[0, at - 1]] if at else [])) for at in range(12)]
        await w.submit_tasks(before, chain)
        await w.rows("ANALYZE task_edges, task_parents")
        host = await w.leased_host(before)
        for _ in chain:
            await host.finish((await host.claim()).tasks)
            await resolve_all(w.store)
        count = QUEUED if wide == "in" else 1
        parents = [[0, at] for at in range(count)]
        children = [dependent(*parents)] * (1 if wide == "in" else QUEUED)
        await w.submit_tasks(group, [dependent() for _ in range(count)] + children)
        host = await w.leased_host(group)
        await host.report(*map(outcome, (await host.claim(BATCH)).tasks))
        plans.take("tasks/report.sql report")
        await resolve_all(w.store)
        resolved = BATCH if wide == "in" else QUEUED
        assert most_rows(plans.take("dependencies/resolve.sql resolve")) <= ROWS_PER_TASK * resolved


def dependent(*parents: list[int]) -> TaskSubmission:
    return TaskSubmission(command=["true"], depends_on=list(parents))
