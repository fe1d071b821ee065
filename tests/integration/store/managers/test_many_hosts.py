"""Many hosts at once share the few connections of a process."""

import asyncio
from typing import LiteralString

import pytest

from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import record_contact
from tests.support.campaigns import world

HOSTS = 1000
CONNECTIONS = 5
AT_ONCE = 100
"""Each is in contact every 3 s, so fewer than 1,000 call in the time that a call takes."""
SILENT: LiteralString = """
WITH made AS (
    INSERT INTO managers (name, creator_id, machine_id, cores)
    SELECT 'h' || n, u.id, 'm' || n, '{0,1}' FROM users AS u, generate_series(1, %s) AS n RETURNING id
), roles AS (
    INSERT INTO user_group_managers (user_group_id, manager_id, role)
    SELECT g.id, m.id, 'write' FROM user_groups AS g, made AS m WHERE g.name = 'alice'
)
INSERT INTO manager_live (manager_id, offline, last_contact_at, contact_since)
SELECT id, false, now() - interval '1 minute', now() FROM made
"""


@pytest.mark.spec("S000-161")
async def test_a_thousand_hosts_in_contact_are_all_offered(database: str) -> None:
    async with world(database, pool_size=CONNECTIONS) as w:
        group = await w.group(worker_allocation_plan={"worker_count": 1})
        await w.submit(group, 2 * HOSTS)  # two tasks are worth a host
        await w.rows(SILENT, HOSTS)
        assert (await assign_round(w.store)).offered == 0, "none of them is in contact"
        hosts = [row["uuid"] for row in await w.rows("SELECT uuid FROM managers")]
        began = await w.value("SELECT now()")
        for first in range(0, HOSTS, AT_ONCE):
            some = hosts[first : first + AT_ONCE]
            await asyncio.gather(*(record_contact(w.store, host) for host in some))
        assert w.database._pool.get_stats()["pool_size"] <= CONNECTIONS
        in_contact = "SELECT count(*) FROM manager_live WHERE last_contact_at >= %s"
        assert await w.value(in_contact, began) == HOSTS
        # On a busy machine the first of them may be silent by now.
        await w.rows("UPDATE manager_live SET last_contact_at = now()")
        assert (await assign_round(w.store)).offered == HOSTS
        offered = "SELECT count(DISTINCT manager_id) FROM leases WHERE state = 'offered'"
        assert await w.value(offered) == HOSTS
