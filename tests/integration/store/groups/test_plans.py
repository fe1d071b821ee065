"""A dry run of a task group: the hosts, times and resources that it shows, and that it changes nothing."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg import sql

from mitosis.contracts.errors import AlreadyExists, InvalidRequest
from mitosis.contracts.plans import PlanInfo, PlanTaskGroup
from mitosis.store.groups.plans import plan_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager
from tests.support.campaigns import World, world

SETUP: dict[str, Any] = {"command": ["prepare"], "timeout": 120}
TABLES = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)


async def plan(w: World, tasks: int = 1, seconds: float | None = None, **spec: Any) -> PlanInfo:
    given = {"name": "planned", "group_name": "alice", **spec}
    asked = PlanTaskGroup.model_validate({"spec": given, "tasks": tasks, "task_duration": seconds})
    return await plan_group(w.store, asked, w.user_id)


async def all_rows(w: World) -> dict[str, list[str]]:
    """Everything in the database, as text."""
    found = {}
    for table in await w.rows(TABLES):
        statement = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(table["relname"]))
        found[table["relname"]] = sorted(str(row["t"]) for row in await w.rows(statement))
    return found


async def measured(w: World, setup: float, teardown: float, task: float) -> None:
    """A task group of the past with the same setup hook."""
    await w.group("past", environment_setup_hook=SETUP)
    await w.rows(
        "INSERT INTO environment_durations SELECT g.id, m.id, k.kind, k.seconds, 4, 4, 0"
        "  FROM task_groups AS g, managers AS m,"
        "       (VALUES ('setup', %s), ('teardown', %s)) AS k (kind, seconds)",
        setup,
        teardown,
    )
    await w.rows("UPDATE group_live SET runs = 50, run_seconds = 50 * %s", task)


@pytest.mark.spec("S000-123", "S000-124")
async def test_it_lists_every_host_with_what_it_would_do_and_changes_nothing(database: str) -> None:
    async with world(database) as w:
        free, drained = await w.host(tags=["gpu"]), await w.host(tags=["gpu"])
        untagged, never = await w.host(), await w.host(tags=["gpu"], hello=False)
        await drain_manager(w.store, drained.manager_id)
        before = await all_rows(w)
        found = await plan(w, tags=["gpu"], worker_allocation_plan={"worker_count": 2})
        shown = {host.manager_id: (host.code, host.gets, host.workers) for host in found.hosts}
        assert shown == {
            free.manager_id: ("gets", True, 2),
            drained.manager_id: ("draining", False, 0),
            untagged.manager_id: ("tags", False, 0),
            never.manager_id: ("no_contact", False, 0),
        }
        assert (found.hosts[0].name, found.hosts[0].line) == ("host", "would start 2 workers")
        assert "gpu" in next(host.line for host in found.hosts if host.code == "tags")
        assert await all_rows(w) == before
        group = await w.group("planned", tags=["gpu"], worker_allocation_plan={"worker_count": 2})
        await w.submit(group)
        assert (await assign_round(w.store)).offered == 1
        await free.take(group)  # the round does what the plan said


@pytest.mark.spec("S000-123")
async def test_it_is_refused_where_the_creation_would_be(database: str) -> None:
    async with world(database) as w:
        await w.host()
        await w.group("planned")
        with pytest.raises(AlreadyExists):
            await plan(w)
        exclusive = {"worker_count": 3, "cpu_binding": {"strategy": "exclusive"}}
        with pytest.raises(InvalidRequest, match="host cannot serve it"):
            await plan(w, name="other", worker_allocation_plan=exclusive)


@pytest.mark.spec("S000-125")
async def test_times_and_resources_come_from_what_was_measured(database: str) -> None:
    async with world(database) as w:
        await w.host()
        await w.host()
        await measured(w, 30.0, 10.0, 20.0)
        workers = {
            "worker_count": 2,
            "cpu_binding": {"strategy": "exclusive", "cores_per_worker": 1},
        }
        found = await plan(w, 8, worker_allocation_plan=workers, environment_setup_hook=SETUP)
        used = found.resources
        assert (used.hosts, used.useful_hosts, used.workers, used.cores) == (1, 1, 2, 2)
        assert used.able_hosts == 2
        assert found.setup.expected == timedelta(seconds=30)
        assert found.task is not None
        assert (found.task.least, found.task.expected) == (
            timedelta(seconds=10),
            timedelta(seconds=20),
        )
        assert found.begins is not None
        assert found.ends is not None
        assert found.begins.expected is not None
        assert found.ends.expected is not None
        assert found.ends.expected - found.begins.expected == timedelta(seconds=4 * 20)
        assert used.host_time is not None
        assert used.host_time.expected == timedelta(seconds=30 + 10 + 4 * 20)
        assert found.measured_runs == 2 * 4 + 50


async def test_what_was_never_measured_is_bounded_by_its_timeout(database: str) -> None:
    async with world(database) as w:
        await w.host()
        found = await plan(w, 4, 60.0, environment_setup_hook=SETUP)
        assert found.setup.model_dump(exclude_none=True) == {
            "least": timedelta(),
            "most": timedelta(seconds=120),
        }
        assert found.begins is not None
        assert found.begins.expected is None
        assert found.begins.latest is not None
        assert found.begins.latest - found.begins.earliest == timedelta(seconds=120)


async def test_a_busy_host_is_listed_with_its_holder_and_what_would_change_that(
    database: str,
) -> None:
    async with world(database) as w:
        running = await w.group("running")
        await w.submit(running, 10)
        host = await w.leased_host(running)
        await host.claim()
        found = await plan(w, priority=-1)
        (shown,) = found.hosts
        assert shown.code == "busy"
        assert "running" in shown.line
        assert found.begins is None
        assert found.smallest_change is not None
