"""The facts that a process keeps between rounds are those that a process without any reads."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random
from typing import Any, LiteralString

import psycopg
import pytest

from mitosis.store.groups.explain import explain_group
from mitosis.store.leases import kept_fleet
from mitosis.store.leases.kept_fleet import present_fleet, read_ahead
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.store import Store, StoreOptions
from tests.support.campaigns import World, world
from tests.support.kept_facts import compare
from tests.support.waiting import wait_until_async

CHANGES: Mapping[str, LiteralString] = {
    "name": "UPDATE managers SET name = name || 'x' WHERE id = %(host)s",
    "tags": "UPDATE managers SET tags = ARRAY['gpu'] WHERE id = %(host)s",
    "cores": "UPDATE managers SET cores = '{0,1,2}' WHERE id = %(host)s",
    "drain": "UPDATE managers SET draining = NOT draining WHERE id = %(host)s",
    "incarnation": "UPDATE managers SET incarnation = incarnation + 1 WHERE id = %(host)s",
    "machine": "UPDATE managers SET machine_id = NULL WHERE id = %(host)s",
    "deleted host": "DELETE FROM managers WHERE id = %(host)s",
    "offline": "UPDATE manager_live SET offline = NOT offline WHERE manager_id = %(host)s",
    "silence": "UPDATE manager_live SET last_contact_at = now() - interval '1 minute'"
    " WHERE manager_id = %(host)s",
    "contact": "UPDATE manager_live SET last_contact_at = now(), contact_since = now()"
    " WHERE manager_id = %(host)s",
    "role": "UPDATE user_group_managers SET role = CASE role WHEN 'read' THEN 'write' ELSE 'read' END"
    " WHERE manager_id = %(host)s",
    "no role": "DELETE FROM user_group_managers WHERE manager_id = %(host)s",
    "former tags": "INSERT INTO former_manager_tags (manager_id, until_version, tags)"
    " VALUES (%(host)s, nextval('tag_version'), '{old}')",
    "no former tags": "DELETE FROM former_manager_tags WHERE manager_id = %(host)s",
    "environment": "INSERT INTO environments (manager_id, group_id, state, fingerprint)"
    " VALUES (%(host)s, %(group)s, 'ready', '') ON CONFLICT (manager_id, group_id) DO UPDATE"
    " SET state = CASE environments.state WHEN 'ready' THEN 'owed' ELSE 'ready' END",
    "no environment": "DELETE FROM environments WHERE manager_id = %(host)s",
    "failure": "INSERT INTO host_failures (group_id, manager_id, kind, phase, failures, reason, incarnation,"
    " hook)"
    " SELECT %(group)s, id, 'setup_failed', NULL, 1, 'exit code 3', incarnation, md5('') FROM managers"
    " WHERE id = %(host)s ON CONFLICT (group_id, manager_id, kind) DO UPDATE"
    " SET failures = host_failures.failures + 1",
    "blame": "INSERT INTO host_failures (group_id, manager_id, kind, phase, failures, reason, incarnation,"
    " hook)"
    " SELECT %(group)s, id, 'tasks_failed', 'watched', 9, 'exit code 3', incarnation, '' FROM managers"
    " WHERE id = %(host)s ON CONFLICT (group_id, manager_id, kind) DO UPDATE"
    " SET phase = CASE host_failures.phase WHEN 'watched' THEN 'suspected' ELSE 'quarantined' END",
    "no failure": "DELETE FROM host_failures WHERE manager_id = %(host)s",
    "hook": 'UPDATE task_groups SET environment_setup_hook = \'{"command": ["x"]}\' WHERE id = %(group)s',
    "group ends": "UPDATE group_live SET state = 'complete', terminal_at = now() WHERE group_id = %(group)s"
    " AND state IN ('open', 'closed')",
    "priority": "UPDATE task_groups SET priority = priority + 1 WHERE id = %(group)s",
    "group name": "UPDATE task_groups SET name = name || 'x' WHERE id = %(group)s",
    "member": "INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method)"
    " VALUES (%(group)s, %(host)s, 'user_specified') ON CONFLICT (task_group_id, manager_id) DO UPDATE"
    " SET assignment_method = 'removed'",
    "lease": "INSERT INTO leases (group_id, manager_id) VALUES (%(group)s, %(host)s) ON CONFLICT DO NOTHING",
    "idle lease": "WITH l AS ("
    "INSERT INTO leases (group_id, manager_id, state, taken_at, alive_until, affinity_until)"
    " VALUES (%(group)s, %(host)s, 'active', now(), now(), now()) ON CONFLICT DO NOTHING"
    " RETURNING group_id, manager_id)"
    " INSERT INTO environments (manager_id, group_id, state, fingerprint)"
    " SELECT manager_id, group_id, 'ready', '' FROM l ON CONFLICT (manager_id, group_id) DO UPDATE"
    " SET state = 'ready'",
    "taken": "UPDATE leases SET state = 'active', taken_at = now(), alive_until = now(),"
    " affinity_until = now()"
    " WHERE manager_id = %(host)s AND state = 'offered'",
    "renewed": "UPDATE leases SET renewed = true, affinity_until = now() + interval '1 hour'"
    " WHERE manager_id = %(host)s AND state = 'active'",
    "empty claim": "UPDATE leases SET last_claim_at = now() WHERE manager_id = %(host)s AND state = 'active'",
    "draining lease": "UPDATE leases SET draining = true WHERE manager_id = %(host)s AND state <> 'ended'",
    "ending": "UPDATE leases SET state = 'ending', freed_for = %(group)s, contested_at = now()"
    " WHERE manager_id = %(host)s AND state = 'active'",
    "ended": "UPDATE leases SET state = 'ended', ended_at = now()"
    " WHERE manager_id = %(host)s AND state <> 'ended'",
    "no lease": "DELETE FROM leases WHERE manager_id = %(host)s",
    "tasks": "UPDATE group_live SET unfinished = unfinished + 3, total = total + 3"
    " WHERE group_id = %(group)s",
    "task": "WITH one AS (UPDATE group_live SET unfinished = unfinished + 1, total = total + 1"
    " WHERE group_id = %(group)s) INSERT INTO open_task (group_id, id, priority, state)"
    " VALUES (%(group)s, nextval('task_id'), 0, 0)",
    "claim": "UPDATE open_task AS o SET state = 1, epoch = l.epoch, claim_seq = 1, started_at = now()"
    " FROM leases AS l"
    " WHERE l.manager_id = %(host)s AND l.state = 'active' AND o.group_id = l.group_id AND o.state = 0",
    "no tasks": "WITH gone AS (DELETE FROM open_task WHERE group_id = %(group)s)"
    " UPDATE group_live SET total = total - unfinished, unfinished = 0 WHERE group_id = %(group)s",
}
"""Every kind of change of a fact that decisions read."""
OFTEN = ("idle lease", "claim") * 6
"""Few leases live for long among so many changes."""


async def few(w: World) -> tuple[list[int], list[int]]:
    """Hosts and task groups, and a mark that is older than every transaction, as in each database in use."""
    await w.rows("INSERT INTO fleet_changes (xid, manager_id) VALUES ('3', 0)")
    for number in range(3):
        group = await w.group(f"g{number}", tags={"gpu"} if number else set())
        await w.submit(group, 3)
        await w.host(tags=["gpu"] if number else [])
    hosts = [row["id"] for row in await w.rows("SELECT id FROM managers ORDER BY id")]
    return hosts, [row["id"] for row in await w.rows("SELECT id FROM task_groups ORDER BY id")]


SLOW = ("tags", "drain", "role")
"""Changes of a transaction that ends after later ones, about a host of its own; they lock no task group."""


async def forget(w: World) -> None:
    """Let all marks be old, and a third process delete those that nobody can need."""
    await w.rows("UPDATE fleet_changes SET changed_at = changed_at - interval '1 hour'")
    await w.rows(kept_fleet.SQL["forget_changes"].replace("%(kept)s", "600"))


@pytest.mark.parametrize("seed", range(3))
async def test_after_any_changes_the_kept_facts_are_those_read_without_them(
    database: str, seed: int
) -> None:
    """In a process that looks after each change, and in one that looks now and then."""
    random = Random(seed)
    options = StoreOptions(database_url=database)
    async with world(database) as w, Store.open(options) as other, AsyncExitStack() as slow:
        hosts, groups = await few(w)
        await w.host(tags=["gpu"])
        slow_host = await w.value("SELECT max(id) FROM managers")
        await compare(w.store, kept=False)
        order = [*CHANGES, *OFTEN, *random.choices(list(CHANGES), k=15)]
        random.shuffle(order)
        kept: bool | None = True
        for place, what in enumerate(order):
            values = {"host": random.choice(hosts), "group": random.choice(groups)}
            try:
                async with w.database.connection() as connection:
                    await connection.execute(CHANGES[what], values)
            except psycopg.errors.ForeignKeyViolation:
                continue  # a fact about a host that has been deleted
            await compare(w.store, kept=kept)
            kept = True
            if place % 7 == 3:
                connection = await slow.enter_async_context(w.database.transaction())
                await connection.execute(
                    CHANGES[random.choice(SLOW)], {**values, "host": slow_host}
                )
            if place % 7 == 5:
                await slow.aclose()
            if random.random() < 0.2:
                await compare(other, kept=None)
            if random.random() < 0.1:
                await forget(w)
                kept = None  # the mark of the slow transaction may be among them


async def offers(w: World) -> set[int]:
    return {row["manager_id"] for row in await w.rows("SELECT manager_id FROM leases")}


async def test_a_round_of_another_process_in_between_is_seen(database: str) -> None:
    """It gives hosts away and ends leases; the next round here reads only these hosts again."""
    async with world(database) as w, Store.open(StoreOptions(database_url=database)) as other:
        await few(w)
        await compare(w.store, kept=False)
        answer = await assign_round(other)
        assert answer.offered == len(await offers(w)) > 0
        await compare(w.store)
        assert (await assign_round(w.store)).offered == 0
        await compare(w.store)
        await w.rows("UPDATE leases SET state = 'ended', ended_at = now()")
        assert (await assign_round(other)).offered == answer.offered
        await compare(w.store)


async def test_what_a_round_writes_itself_is_read_by_the_next_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a transaction with a later number ends before the round reads: then its own seems ended."""

    async def after_a_later_one(*of: Any) -> Any:
        await w.rows("UPDATE managers SET name = name || 'x' WHERE id = 1")
        return await present_fleet(*of)

    async with world(database) as w:
        await few(w)
        with monkeypatch.context() as patched:
            patched.setattr("mitosis.store.leases.scheduler.present_fleet", after_a_later_one)
            assert (await assign_round(w.store)).offered > 0
        await compare(w.store)


async def test_a_change_of_a_transaction_that_ends_after_a_later_one_is_seen(database: str) -> None:
    async with world(database) as w:
        hosts, _ = await few(w)
        async with w.database.transaction() as slow:
            await slow.execute("UPDATE managers SET tags = '{slow}' WHERE id = %s", [hosts[0]])
            await w.rows("UPDATE managers SET tags = '{quick}' WHERE id = %s", hosts[1])
            await compare(w.store, kept=False)
            await compare(w.store)
        await compare(w.store)
        assert w.store.fleet.value.rows.hosts[hosts[0]].tags == {"slow"}


@pytest.mark.parametrize(
    "what",
    [
        "INSERT INTO fleet_changes DEFAULT VALUES",
        "DELETE FROM fleet_changes",
        "UPDATE fleet_changes SET xid = pg_current_xact_id()",
        "TRUNCATE host_failures",
        "TRUNCATE task_groups, managers CASCADE",
    ],
)
async def test_all_is_read_again_where_marks_say_so_or_may_be_missing(
    database: str, what: LiteralString
) -> None:
    async with world(database) as w:
        await few(w)
        await compare(w.store, kept=False)
        await compare(w.store)
        await w.rows(what)
        await compare(w.store, kept=False)


async def test_facts_that_changed_without_a_mark_are_reported_and_read_again(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(database) as w:
        hosts, _ = await few(w)
        await compare(w.store, kept=False)
        monkeypatch.setattr(kept_fleet, "KEPT_SECONDS", 0.0)
        await read_ahead(w.store.fleet, w.store)
        assert not caplog.records, "an hour-old reading without a fault"
        async with w.database.transaction() as connection:
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute("UPDATE managers SET draining = true WHERE id = %s", hosts[:1])
        await read_ahead(w.store.fleet, w.store)
        (record,) = caplog.records
        assert record.message == "scheduling.kept_facts_wrong"
        name = await w.value("SELECT name FROM managers WHERE id = %s", hosts[0])
        assert (vars(record)["count"], vars(record)["hosts"]) == (1, [name])
        monkeypatch.undo()
        await compare(w.store)


async def test_marks_are_deleted_but_for_the_newest_of_the_old_ones(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database) as w:
        hosts, _ = await few(w)
        await assign_round(w.store)
        await w.rows("UPDATE fleet_changes SET changed_at = now() - interval '1 hour'")
        await w.rows(
            "INSERT INTO fleet_changes (xid, manager_id) VALUES ('999999999999', %s)", hosts[0]
        )
        old = await w.value(
            "SELECT max(xid::text::bigint) FROM fleet_changes WHERE xid < '999999999999'"
        )
        monkeypatch.setattr(kept_fleet, "KEPT_SECONDS", 0.0)

        async def forgotten() -> bool:  # once no transaction runs in any database that began before
            await assign_round(w.store)
            rows = await w.rows("SELECT xid::text::bigint AS xid FROM fleet_changes")
            left = {row["xid"] for row in rows}
            return old in left and all(old <= one < 999_999_999_999 for one in left)

        await wait_until_async(forgotten)
        monkeypatch.undo()
        await compare(w.store)


async def test_after_a_round_that_failed_all_is_read_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database) as w:
        await few(w)
        await compare(w.store, kept=False)

        async def fail(*_: object) -> int:
            raise RuntimeError("no")

        with monkeypatch.context() as patched:
            patched.setattr("mitosis.store.leases.scheduler.note_idle", fail)
            with pytest.raises(RuntimeError):
                await assign_round(w.store)
        assert await offers(w) == set()
        await compare(w.store, kept=False)
        assert (await assign_round(w.store)).offered > 0


@pytest.mark.spec("C-31")
async def test_a_group_without_any_host_goes_first_after_starve_after_and_not_before(
    database: str,
) -> None:
    async with world(database) as w:
        low, high = await w.group("low", priority=0), await w.group("high", priority=9)
        await w.submit(low)
        answer = await assign_round(w.store)
        assert answer.next_round_in_seconds == w.store.starve_after.total_seconds()
        await w.submit(high)
        await w.host()
        for seconds, wins in ((-60, "high"), (0, "low")):
            await w.rows(
                "UPDATE hostless_groups SET since = now() - make_interval(secs => %s) FROM task_groups AS g"
                " WHERE g.id = group_id AND g.name = 'low'",
                w.store.starve_after.total_seconds() + seconds,
            )
            assert (await assign_round(w.store)).offered == 1
            assert await holders(w) == [wins]
            await w.rows(
                "UPDATE leases SET state = 'ended', ended_at = now() WHERE state <> 'ended'"
            )


async def holders(w: World) -> list[str]:
    return [
        row["name"]
        for row in await w.rows(
            "SELECT g.name FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id"
            " WHERE l.state <> 'ended'"
        )
    ]


async def test_the_time_without_a_host_begins_again_with_the_next_tasks(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        await assign_round(w.store)
        first = await w.value("SELECT since FROM hostless_groups")
        assert first is not None
        await assign_round(w.store)
        assert await w.value("SELECT since FROM hostless_groups") == first
        await w.host()
        await assign_round(w.store)
        assert await w.value("SELECT since FROM hostless_groups") is None
        await w.rows("UPDATE leases SET state = 'ended', ended_at = now()")
        await w.rows("UPDATE managers SET draining = true")
        await assign_round(w.store)
        assert await w.value("SELECT since FROM hostless_groups") > first


async def test_an_explanation_decides_on_a_copy_of_the_kept_facts(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a host that is not in contact and so is not among them."""
    async with world(database) as w:
        group = await w.group(tags={"gpu"})
        await w.submit(group)
        away = await w.host(tags=["gpu"])
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '1 minute'")
        here = await w.host(tags=["x86"])
        await assign_round(w.store)
        explained = await explain_group(w.store, group)
        codes = {host.manager_id: [one.code for one in host.obstacles] for host in explained.hosts}
        assert codes == {away.manager_id: ["no_contact"], here.manager_id: ["tags"]}
        assert explained.change == "tag gpu on host and refresh the hosts of campaign"
        await compare(w.store)
        before = w.store.fleet.value.rows
        monkeypatch.setattr(kept_fleet, "LONGEST_KEPT_SECONDS", 0.0)
        await explain_group(w.store, group)
        assert w.store.fleet.value.rows is not before, "no round has read all again for long"
