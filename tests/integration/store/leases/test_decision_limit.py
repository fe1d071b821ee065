"""A decision knows every host and task group that matters, and its limit alone cuts what it does."""

from dataclasses import replace
from typing import LiteralString

import pytest

from mitosis.scheduling.explain import explain_group
from mitosis.scheduling.policy import Policy
from mitosis.store.leases.decisions import decision_before
from mitosis.store.leases.lease_terms import policy_of
from mitosis.store.leases.scheduler import LEAST_PAUSE_SECONDS, assign_round
from mitosis.store.store import Store
from tests.support.campaigns import World, world
from tests.support.kept_facts import compare

LIMIT, MORE = 5, 3
"""The limit is 1,000 outside of this test; hosts beyond it."""
HOSTS: LiteralString = """
WITH made AS (
    INSERT INTO managers (name, creator_id, machine_id, cores)
    SELECT 'h' || n, u.id, 'm' || n, '{0,1}' FROM users AS u, generate_series(1, %s) AS n RETURNING id
), roles AS (
    INSERT INTO user_group_managers (user_group_id, manager_id, role)
    SELECT g.id, m.id, 'write' FROM user_groups AS g, made AS m WHERE g.name = 'alice'
)
INSERT INTO manager_live (manager_id, offline, last_contact_at, contact_since)
SELECT id, false, now(), now() FROM made
"""
AWAY: LiteralString = """
WITH away AS (INSERT INTO managers (name, creator_id) SELECT 'away', id FROM users RETURNING id)
INSERT INTO manager_live (manager_id, offline, last_contact_at, contact_since)
SELECT id, %s, now() - interval '1 minute', now() FROM away
"""
"""A host that is offered nothing."""


async def numbers(w: World, statement: LiteralString) -> set[int]:
    return {row["id"] for row in await w.rows(statement)}


@pytest.mark.spec("S000-164")
async def test_all_hosts_in_contact_and_all_groups_with_work_are_decided_about_up_to_the_limit(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(store: Store) -> Policy:
        return replace(policy_of(store), actions_per_round=LIMIT)

    for reader in ("kept_fleet", "fleet_snapshot"):
        monkeypatch.setattr(f"mitosis.store.leases.{reader}.policy_of", limited)
    async with world(database) as w:
        large, small = await w.group("large", priority=1), await w.group("small")
        await w.submit(large, 2 * (LIMIT + MORE - 1))  # two tasks are worth a host
        await w.submit(small)
        nowhere = await w.group("nowhere", assignment_method="user_specified")
        await w.submit(nowhere)
        await w.group("idle")
        await w.cancel(await w.group("over"))
        await w.rows(HOSTS, LIMIT + MORE)
        for offline in (False, True):
            await w.rows(AWAY, offline)

        answer = await assign_round(w.store)
        assert (answer.offered, answer.next_round_in_seconds) == (LIMIT, LEAST_PAUSE_SECONDS)
        async with w.database.connection() as connection:
            decided = await decision_before(connection, await w.value("SELECT now()"))
        snapshot = decided.snapshot
        assert snapshot.hosts.keys() == await numbers(
            w, "SELECT id FROM managers WHERE name <> 'away'"
        )
        assert snapshot.groups.keys() == await numbers(
            w, "SELECT id FROM task_groups WHERE name IN ('large', 'small', 'nowhere')"
        )

        number = await w.value("SELECT id FROM task_groups WHERE uuid = %s", small)
        chains = explain_group(snapshot, decided.now, number).chains
        cut = [chain.first_obstacle for chain in chains[LIMIT:]]
        assert {
            (step.code, f"made {LIMIT} of at most {LIMIT} " in step.sentence)
            for step in cut
            if step
        } == {("next_round", True)}
        assert len(cut) == MORE
        assert None not in cut

        assert (await assign_round(w.store)).offered == MORE
        assert await w.value("SELECT count(*) FROM leases WHERE state = 'offered'") == LIMIT + MORE
        served = "SELECT count(*) FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id"
        assert await w.value(f"{served} WHERE g.name = 'small'") == 1
        await compare(w.store, kept=None)
