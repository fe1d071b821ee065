"""Runs as the API shows them."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.runs import RunsQuery
from mitosis.store.runs.views import RUNS_SQL, list_runs
from mitosis.store.users.accounts import create_user
from tests.support.runs import Runs, command, job, runs


async def test_a_wait_ends_with_the_next_revision(database: str) -> None:
    async with runs(database) as r:
        run = await r.start(job({"a": command("a")}))
        before = await r.view(run)
        assert (await r.wait(run, wait_seconds=0.05)).revision == before.revision
        await r.work()
        after = await r.wait(run, wait_seconds=20, after_revision=before.revision)
        assert after.revision > before.revision


async def of_schedule(r: Runs, name: str, run: UUID, minute: int) -> None:
    """Make a run one that a schedule of its user group has started."""
    given = {"name": name, "run": run, "at": datetime(2026, 11, 28, 2, minute, tzinfo=UTC)}
    async with r.w.store.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO jobs (user_group_id, name) SELECT user_group_id, %(name)s FROM runs LIMIT 1"
            " ON CONFLICT DO NOTHING",
            given,
        )
        await connection.execute(
            "INSERT INTO schedules (user_group_id, creator_id, job_id, name, parameters, timing, time_zone,"
            " overlap, jitter_seconds, catch_up_seconds, paused) SELECT r.user_group_id, r.creator_id, j.id,"
            " %(name)s, '{}', '{}', 'UTC', 'skip', 0, 60, true FROM runs AS r, jobs AS j"
            " WHERE r.uuid = %(run)s AND j.name = %(name)s ON CONFLICT DO NOTHING",
            given,
        )
        await connection.execute(
            "UPDATE runs SET schedule_id = (SELECT id FROM schedules WHERE name = %(name)s),"
            " nominal_time = %(at)s WHERE uuid = %(run)s",
            given,
        )


async def test_runs_of_schedules_are_listed_with_their_schedule_and_not_with_a_user(
    database: str,
) -> None:
    """A schedule starts thousands of runs: the last run that a user has started is another one."""
    async with runs(database) as r:
        started = [await r.start(job({"a": command("a")})) for _ in range(4)]
        for minute, (name, run) in enumerate(zip(("one", "two", "two"), started[1:], strict=True)):
            await of_schedule(r, name, run, minute)
        await create_user(r.w.store, "bob")
        async with r.w.store.database.transaction() as connection:
            await connection.execute(
                "INSERT INTO schedules (user_group_id, creator_id, job_id, name, parameters, timing,"
                " time_zone, overlap, jitter_seconds, catch_up_seconds, paused) SELECT o.id, s.creator_id,"
                " s.job_id, s.name, '{}', '{}', 'UTC', 'skip', 0, 60, true"
                " FROM schedules AS s, user_groups AS o WHERE o.name = 'bob'"
            )

        async def listed(**query: Any) -> list[UUID]:
            found = await list_runs(r.w.store, r.w.user_id, RunsQuery(**query))
            return [one.run_id for one in found.items]

        newest = started[::-1]
        assert await listed() == newest
        assert await listed(created_by=r.user) == started[:1], "what @last means"
        assert await listed(schedule="two", group_name=r.user) == newest[:2]
        assert await listed(schedule="two", group_name=r.user, created_by=r.user) == newest[:2]
        assert await listed(schedule="one", group_name=r.user) == [started[1]]
        assert await listed(schedule="one", group_name="bob") == []


MANY_RUNS = (
    "INSERT INTO runs (user_group_id, creator_id, job_name, version, digest, definition, parameters, state,"
    " created_at, ended_at, schedule_id, nominal_time) SELECT r.user_group_id, r.creator_id, r.job_name,"
    " r.version, r.digest, r.definition, r.parameters, 'success', now(), now(),"
    " CASE WHEN %(scheduled)s THEN r.schedule_id END,"
    " CASE WHEN %(scheduled)s THEN r.nominal_time + make_interval(mins => i) END"
    " FROM runs AS r, generate_series(1, 2000) AS i"
)
"""Of the other kind than those that are listed. Without rows all indexes of a creator cost the same."""


@pytest.mark.new_sessions
@pytest.mark.parametrize(
    ("of_creator", "of_a_schedule", "index"),
    [(True, False, "runs_by_hand"), (False, True, "runs_by_schedule")],
)
async def test_a_list_reads_no_more_runs_than_it_shows(
    database: str, of_creator: bool, of_a_schedule: bool, index: str
) -> None:
    async with runs(database) as r:
        await of_schedule(r, r.user, await r.start(job({"a": command("a")})), 0)
        given: dict[str, Any] = {
            **dict.fromkeys(("job", "schedule", "group_name", "created_by"), r.user),
            "job": None,
            "viewer": r.w.user_id,
            "before": 2**62,
            "states": [],
            "labels": [],
            "limit": 50,
        }
        async with r.w.store.database.transaction() as connection:
            await connection.execute(MANY_RUNS, {"scheduled": not of_a_schedule})
            await connection.execute("ANALYZE runs")
            await connection.execute("SET LOCAL enable_seqscan = off")
            statement = RUNS_SQL[of_creator, of_a_schedule]
            explained = await connection.execute("EXPLAIN (FORMAT json) " + statement, given)
            plan = json.dumps(await explained.fetchone())
        assert f'"Index Name": "{index}"' in plan, plan
        assert '"Sort"' not in plan, plan
