"""What does it cost to judge hosts whose tasks fail (C-33), with 10,000 hosts? In ms.

Some hosts of one group are suspects; the rows differ in what the other hosts are. `suspects` reads all that
is known about them and looks for hosts that could try their tasks, `report` does the latter for one host, as
each report of failures, `due` and `next` find what is to be judged: the least of three executions, as
PostgreSQL measures them. `judge` is a whole judgement of the group.

    .venv/bin/python -m bench.judgements [--hosts 10000] [--suspects 5]
"""

import argparse
import asyncio
import time
from collections.abc import Mapping
from typing import LiteralString

from bench.assign_round import GROUPS, HOSTS, IN_CONTACT
from bench.scratch_database import scratch_database
from mitosis.store.leases.doubt import AWAITED, SQL, SUSPECTS, judge_groups, with_other_hosts
from mitosis.store.pg.database import Connection, Database
from mitosis.store.store import Store

LEASED: LiteralString = """
WITH made AS (
    INSERT INTO leases (group_id, manager_id, state, taken_at, alive_until, last_claim_at)
    SELECT CASE WHEN m.id <= %(leased)s THEN 1 ELSE 2 END, m.id, 'active', now(),
           now() + interval '1 day', now()
      FROM managers AS m WHERE m.id <= %(leased)s OR %(all)s RETURNING manager_id, group_id
)
INSERT INTO environments (manager_id, group_id, state, fingerprint)
SELECT manager_id, group_id, 'ready', '' FROM made
"""
FAILED: LiteralString = """
INSERT INTO host_failures (group_id, manager_id, kind, phase, failures, reason, incarnation, hook, next_at,
                           tasks)
SELECT 1, m.id, 'tasks_failed', CASE WHEN m.id <= %(suspects)s THEN 'suspected' ELSE 'watched' END, 5,
       'bench', m.incarnation, '', now() + interval '600 s',
       ARRAY(SELECT o.id FROM open_task AS o WHERE o.group_id = 1 ORDER BY o.id LIMIT 5)
  FROM managers AS m WHERE m.id <= %(leased)s
"""
DOUBTED: LiteralString = """
UPDATE open_task AS o SET state = 5, avoid = 1
 WHERE o.id IN (SELECT p.id FROM open_task AS p WHERE p.group_id = 1 ORDER BY p.id LIMIT 32)
"""
FULL = "no place is left"
LEASED_OF_FULL = 100
CASES: Mapping[str, LiteralString] = {
    "others are free": "SELECT 1",
    "others are away": "UPDATE manager_live SET last_contact_at = now() - interval '200 s'",
    "others are too small": "UPDATE managers SET cores = '{0}'",
    "others work for another group": "SELECT 1",
    "others end leases of another group": "UPDATE leases SET state = 'ending' WHERE group_id = 2",
    FULL: "SELECT 1",
}
"""Of the last one: 100 hosts of the group fail, and ``max_managers`` leaves a place to nobody else."""
ONE = with_other_hosts(
    "SELECT $working$ AS working, $expected$ AS expected"
    " FROM (SELECT 1::bigint AS group_id, 1::bigint AS manager_id) AS v"
)


async def milliseconds(connection: Connection, statement: LiteralString, **values: object) -> float:
    """Return the least of three executions, as PostgreSQL measures it."""
    times = []
    for _ in range(3):
        rows = await connection.execute(
            "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + statement, values
        )
        row = await rows.fetchone()
        assert row is not None
        times.append(float(row["QUERY PLAN"][0]["Execution Time"]))
    return min(times)


async def measure(url: str, hosts: int, suspects: int, case: str) -> None:
    async with Database.open(url) as database:
        store = Store(database=database)

        async def execute(statement: LiteralString, **values: object) -> None:
            async with database.transaction() as connection:
                await connection.execute(statement, values or None)

        held = LEASED_OF_FULL if case == FULL else suspects
        most = held - suspects if case == FULL else None
        await execute("INSERT INTO users (username) VALUES ('bench')")
        await execute("INSERT INTO user_groups (name, creator_id) SELECT 'bench', id FROM users")
        await execute(HOSTS, count=hosts)
        await execute(GROUPS, name="g", tags=[], count=2, tasks=2000, most=most)
        await execute(
            "UPDATE task_groups SET worker_allocation_plan ="
            """ '{"worker_count": 2, "cpu_binding": {"strategy": "exclusive"}}'"""
        )
        leased = {"leased": held, "all": "another group" in case}
        await execute(IN_CONTACT)
        for statement, values in (
            (LEASED, leased),
            (FAILED, {"suspects": suspects, "leased": held}),
            (DOUBTED, {}),
        ):
            await execute(statement, **values)
        await execute(CASES[case])
        await execute("ANALYZE")
        known = {"group_number": 1, "quarantine_after": 5, **AWAITED}
        async with database.connection() as connection:
            read = await milliseconds(connection, SUSPECTS, **known)
            one = await milliseconds(connection, ONE, quarantine_after=5, **AWAITED)
            due = await milliseconds(connection, SQL["groups_in_doubt"])
            again = await milliseconds(connection, SQL["next_judgement"], soon=10, seldom=600)
        began = time.perf_counter()
        await judge_groups(store)
        judged = (time.perf_counter() - began) * 1e3
        print(f"{case:<36} {read:>9.1f} {judged:>9.1f} {one:>9.1f} {due:>9.2f} {again:>9.2f}")


async def run(hosts: int, suspects: int) -> None:
    names = ("suspects", "judge", "report", "due", "next")
    print(f"{'':<36} " + " ".join(f"{name:>9}" for name in names))
    for case in CASES:
        async with scratch_database() as url:
            await measure(url, hosts, suspects, case)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--suspects", type=int, default=5)
    chosen = parser.parse_args()
    asyncio.run(run(chosen.hosts, chosen.suspects))


if __name__ == "__main__":
    main()
