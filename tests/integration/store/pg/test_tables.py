"""The tables of groups and hosts as PostgreSQL has them: columns, keys, and what it refuses."""

import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.store.groups.views import read_group
from mitosis.store.managers.views import get_manager
from tests.support.campaigns import World, world

COLUMNS = """
SELECT a.attname AS name,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END,
                 CASE WHEN a.attidentity <> '' THEN 'IDENTITY' END) AS kind
  FROM pg_attribute AS a
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped"""
RULES = """
SELECT pg_get_constraintdef(oid) AS rule FROM pg_constraint WHERE conrelid = %s::regclass"""


async def columns(w: World, table: str, *names: str) -> dict[str, str]:
    found = {row["name"]: row["kind"] for row in await w.rows(COLUMNS, table)}
    return {name: found[name] for name in names}


async def rules(w: World, table: str) -> set[str]:
    return {row["rule"] for row in await w.rows(RULES, table)}


@pytest.mark.spec("S002-61", "S002-62", "S002-64", "S002-255")
async def test_a_task_group_is_a_row_that_belongs_to_a_user_group(database: str) -> None:
    async with world(database) as w:
        assert await columns(
            w,
            "task_groups",
            *("id", "uuid", "name", "user_group_id", "creator_id", "worker_allocation_plan"),
        ) == {
            "id": "bigint NOT NULL IDENTITY",
            "uuid": "uuid NOT NULL",
            "name": "text NOT NULL",
            "user_group_id": "bigint NOT NULL",
            "creator_id": "bigint NOT NULL",
            "worker_allocation_plan": "jsonb NOT NULL",
        }
        assert {
            "PRIMARY KEY (id)",
            "UNIQUE (uuid)",
            "FOREIGN KEY (user_group_id) REFERENCES user_groups(id)",
            "FOREIGN KEY (creator_id) REFERENCES users(id)",
        } <= await rules(w, "task_groups")
        binding = {"strategy": "exclusive", "cores": [0, 1]}
        plan = WorkerAllocationPlan.model_validate({"worker_count": 2, "cpu_binding": binding})
        await w.group(worker_allocation_plan=plan)
        stored = await w.value("SELECT worker_allocation_plan FROM task_groups")
        assert stored["worker_count"] == 2
        assert stored["cpu_binding"].items() >= binding.items()


@pytest.mark.spec("S002-66", "S002-67", "S002-68")
async def test_state_and_times_of_a_task_group(database: str) -> None:
    async with world(database) as w:
        assert await columns(
            w, "task_groups", "auto_close_timeout_seconds", "created_at", "updated_at"
        ) == {
            "auto_close_timeout_seconds": "double precision",
            "created_at": "timestamp with time zone NOT NULL",
            "updated_at": "timestamp with time zone NOT NULL",
        }
        assert await columns(w, "group_live", "state", "last_task_submitted_at", "terminal_at") == {
            "state": "text NOT NULL",
            "last_task_submitted_at": "timestamp with time zone",
            "terminal_at": "timestamp with time zone",
        }
        group = await w.group()
        (row,) = await w.rows(
            "SELECT state, auto_close_timeout_seconds AS timeout, last_task_submitted_at AS last"
            " FROM group_live JOIN task_groups ON id = group_id"
        )
        assert row == {"state": "open", "timeout": None, "last": None}
        assert (await w.control.close_if_inactive(group)).auto_close_in_seconds is None, "never"
        await w.submit(group)
        assert await w.value("SELECT last_task_submitted_at IS NOT NULL FROM group_live")
        states = await rules(w, "group_live")
        (allowed,) = [rule for rule in states if rule.startswith("CHECK ((state = ANY")]
        words = ("open", "closed", "complete", "cancelled")
        assert allowed.count("::text") == len(words)
        assert all(f"'{word}'" in allowed for word in words)
        assert (await read_group(w.store, group)).completed_at is None
        await w.cancel(group)
        assert (await read_group(w.store, group)).completed_at is not None


@pytest.mark.spec("S002-72", "S002-73", "S002-255")
async def test_a_manager_is_a_row_that_somebody_made(database: str) -> None:
    async with world(database) as w:
        assert await columns(w, "managers", "id", "uuid", "creator_id", "tags", "labels") == {
            "id": "bigint NOT NULL IDENTITY",
            "uuid": "uuid NOT NULL",
            "creator_id": "bigint NOT NULL",
            "tags": "text[] NOT NULL",
            "labels": "text[] NOT NULL",
        }
        assert {
            "PRIMARY KEY (id)",
            "UNIQUE (uuid)",
            "FOREIGN KEY (creator_id) REFERENCES users(id)",
        } <= await rules(w, "managers")
        members = await rules(w, "user_group_managers")
        assert {
            "PRIMARY KEY (user_group_id, manager_id)",
            "FOREIGN KEY (user_group_id) REFERENCES user_groups(id) ON DELETE CASCADE",
            "FOREIGN KEY (manager_id) REFERENCES managers(id) ON DELETE CASCADE",
        } <= members
        (roles,) = [rule for rule in members if rule.startswith("CHECK")]
        assert all(f"'{role}'" in roles for role in ("read", "write", "admin"))


@pytest.mark.spec("S002-69", "S002-75", "S002-169", "S002-170")
async def test_what_a_manager_works_for_stands_in_its_lease(database: str) -> None:
    async with world(database) as w:
        times = ("alive_until", "affinity_until", "last_claim_at")
        assert set((await columns(w, "leases", *times)).values()) == {"timestamp with time zone"}
        assert set((await columns(w, "managers", "created_at", "updated_at")).values()) == {
            "timestamp with time zone NOT NULL"
        }
        keys = {rule for rule in await rules(w, "leases") if rule.startswith("FOREIGN KEY")}
        assert keys == {"FOREIGN KEY (manager_id) REFERENCES managers(id) ON DELETE CASCADE"}, (
            "a lease outlives its group (P8)"
        )
        group = await w.group()  # as many managers as there are
        await w.submit(group, 100)
        free = await w.host(hello=False)
        for host in [await w.leased_host(group) for _ in range(3)]:
            await host.claim(1)
            lease = (await get_manager(w.store, host.manager_id)).lease
            assert lease is not None
            assert lease.task_group_id == group
        assert (await get_manager(w.store, free.manager_id)).lease is None
        written = await w.rows(
            "SELECT alive_until > now() AS alive, affinity_until > now() AS safe,"
            " last_claim_at IS NOT NULL AS claimed FROM leases"
        )
        assert written == [{"alive": True, "safe": True, "claimed": True}] * 3
