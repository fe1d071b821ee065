"""What does one assignment round cost with 10,000 hosts? The parts of its transaction, in ms.

Each row has the time that passed and the CPU time of this process, without that of PostgreSQL.
`load` reads the whole snapshot, `kept facts` brings that of the last round up to date, `decide` is the pure
decision, `round` is the last two with the writes and what stands around them. The floor is the smallest
statement that reads all hosts. `look` is what the control worker asks every few seconds. `explain` is for the
task group that was created last; the first one in a process reads the whole snapshot.

    .venv/bin/python -m bench.assign_round [--hosts 10000] [--groups 200]
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import LiteralString

from bench.scratch_database import scratch_database
from mitosis.scheduling.decide import decide
from mitosis.store.groups.explain import explain_group
from mitosis.store.leases.fleet_snapshot import Fleet, load_fleet
from mitosis.store.leases.kept_fleet import present_fleet
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.pg.database import Database
from mitosis.store.store import Store

HOSTS: LiteralString = """
WITH made AS (
    INSERT INTO managers (name, creator_id, tags, machine_id, cores)
    SELECT 'h' || n, u.id, ARRAY['t' || n %% 50], 'm' || n, '{0,1,2,3,4,5,6,7}'
      FROM users AS u, generate_series(1, %(count)s) AS n RETURNING id
), roles AS (
    INSERT INTO user_group_managers (user_group_id, manager_id, role)
    SELECT g.id, m.id, 'write' FROM user_groups AS g, made AS m
)
INSERT INTO manager_live (manager_id, offline, last_contact_at, contact_since)
SELECT id, false, now(), now() FROM made
"""
GROUPS: LiteralString = """
WITH made AS (
    INSERT INTO task_groups (name, user_group_id, creator_id, tags, priority, worker_allocation_plan,
                             max_managers)
    SELECT %(name)s || n, g.id, g.creator_id, %(tags)s::text[], n %% 3, '{"worker_count": 8}', %(most)s::int
      FROM user_groups AS g, generate_series(1, %(count)s) AS n RETURNING id
), live AS (
    INSERT INTO group_live (group_id, total, unfinished) SELECT id, %(tasks)s, %(tasks)s FROM made
)
INSERT INTO open_task (group_id, id, priority, state)
SELECT m.id, nextval('task_id'), 0, 0 FROM made AS m, generate_series(1, %(tasks)s)
"""
TAKEN: LiteralString = """
WITH taken AS (
    UPDATE leases SET state = 'active', taken_at = now(), alive_until = now() + interval '1 day',
                      busy_at = now(), last_claim_at = now(),
                      affinity_until = now() + interval '1 hour' * (1 + 3 * random())
     WHERE state = 'offered' RETURNING manager_id, group_id
)
INSERT INTO environments (manager_id, group_id, state, fingerprint)
SELECT manager_id, group_id, 'ready', '' FROM taken
"""
IN_CONTACT: LiteralString = "UPDATE manager_live SET last_contact_at = now() + interval '1 hour'"


async def timed(name: str, call: Callable[[], Awaitable[object]], note: str = "") -> None:
    began, used = time.perf_counter(), time.process_time()
    answer = await call()
    spent, own = time.perf_counter() - began, time.process_time() - used
    print(f"{name:<44} {spent * 1e3:>9.1f} {own * 1e3:>9.1f}  {note or answer}")


async def parts(store: Store, what: str) -> None:
    """Print what reading and deciding cost, without writing."""
    fleet: Fleet | None = None
    async with store.database.connection() as connection:

        async def floor() -> str:
            rows = await (
                await connection.execute("SELECT id, name, tags FROM managers")
            ).fetchall()
            return f"{len(rows)} rows"

        async def load() -> str:
            nonlocal fleet
            fleet = await load_fleet(connection, store)
            return f"{len(fleet.snapshot.hosts)} hosts, {len(fleet.snapshot.leases)} leases"

        async def decided() -> str:
            assert fleet is not None
            return f"{len(decide(fleet.snapshot, fleet.now))} actions"

        await timed(f"{what}: floor", floor)
        await timed(f"{what}: load", load)
        await timed(f"{what}: decide", decided)


async def measure(url: str, hosts: int, groups: int) -> None:
    async with Database.open(url) as database:
        store = Store(database=database)

        async def execute(statement: LiteralString, **values: object) -> None:
            async with database.transaction() as connection:
                await connection.execute(statement, values or None)

        async def kept() -> str:
            async with store.fleet.turn() as kept, database.transaction() as connection:
                return f"{len((await present_fleet(kept, connection, store)).snapshot.hosts)} hosts"

        async def case(what: str) -> None:
            await execute(IN_CONTACT)
            await parts(store, what)
            await timed(f"{what}: kept facts", kept)
            await timed(f"{what}: round", lambda: assign_round(store))
            await timed(f"{what}: look", lambda: look(store), " ")
            async with database.connection() as connection:
                newest = "SELECT uuid FROM task_groups ORDER BY id DESC LIMIT 1"
                row = await (await connection.execute(newest)).fetchone()
            if row is not None:
                explained = partial(explain_group, store, row["uuid"])
                await timed(f"{what}: explain", explained, " ")

        await execute("INSERT INTO users (username) VALUES ('bench')")
        await execute("INSERT INTO user_groups (name, creator_id) SELECT 'bench', id FROM users")
        await execute(HOSTS, count=hosts)
        await execute("ANALYZE")
        await case("nothing waits, all free")
        await case("the same again")
        await execute(GROUPS, name="one", tags=["t1"], count=groups, tasks=16, most=1)
        await case(f"{groups} groups, one lease each")
        await execute(GROUPS, name="many", tags=[], count=groups, tasks=2000, most=None)
        await execute("ANALYZE")
        while await database_value(database, "SELECT count(*) FROM leases") < hosts:
            before = await database_value(database, "SELECT count(*) FROM leases")
            await case("all hosts wanted")
            await execute(TAKEN)
            if await database_value(database, "SELECT count(*) FROM leases") == before:
                break
        await execute("ANALYZE")
        await case("all leased, groups wait")
        await execute("DELETE FROM open_task")
        await execute("UPDATE group_live SET unfinished = 0, total = 0")
        await case("all leased, nothing waits")


async def database_value(database: Database, statement: LiteralString) -> int:
    async with database.connection() as connection:
        row = await (await connection.execute(statement)).fetchone()
    assert row is not None
    return int(next(iter(row.values())))


async def run(hosts: int, groups: int) -> None:
    async with scratch_database() as url:
        await measure(url, hosts, groups)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=200)
    chosen = parser.parse_args()
    asyncio.run(run(chosen.hosts, chosen.groups))


if __name__ == "__main__":
    main()
