"""The round and `explain` decide by one list of conditions, and SQL decides nothing besides."""

# ruff: noqa: S608 - the statements are constants of this file

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

import pytest

from mitosis.scheduling.predicates import PREDICATES, Predicate, Scope
from mitosis.store.groups.assignment import add_managers
from mitosis.store.groups.explain import explain_group
from mitosis.store.leases import scheduler
from mitosis.store.leases.fleet import (
    GROUPS_OF_ROUND,
    HOSTS_IN_CONTACT,
    GroupRow,
    HostRow,
    groups_statement,
    hosts_statement,
)
from mitosis.store.leases.fleet_snapshot import fact_parameters, load_fleet
from mitosis.store.leases.no_host_reasons import NONE_LEFT
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.pg.rows import fetch_all
from mitosis.store.store import Store
from tests.support.campaigns import World, world

BY_CODE = {one.code: one for one in PREDICATES if one.code != "too_small"}
"""All of which something in PostgreSQL can make false: a host has one slot, and a lease takes it."""
HOST: LiteralString = "(SELECT id FROM managers WHERE name = 'host')"
GROUP: LiteralString = "(SELECT id FROM task_groups WHERE name = 'campaign')"
OTHER: LiteralString = "(SELECT id FROM task_groups WHERE name = 'other')"


@pytest.fixture(autouse=True)
def no_judgement_before_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends a quarantine without another host; these tests are about the conditions alone."""

    async def keep(_: Store) -> None:
        return None

    monkeypatch.setattr(scheduler, "judge_groups", keep)


@dataclass(frozen=True)
class Break:
    """SQL that makes one condition false and true again; then the codes of the group and of the host."""

    undo: LiteralString
    do: LiteralString
    group: str
    host: str


def host_failure(
    kind: LiteralString,
    pause: LiteralString = "interval '1 hour'",
    phase: LiteralString = "NULL",
    stored: LiteralString | None = None,
) -> Break:
    """A failure of both hosts for the group."""
    return Break(
        do="INSERT INTO host_failures"
        " (group_id, manager_id, kind, phase, reason, incarnation, hook, next_at)"
        f" SELECT {GROUP}, id, '{stored or kind}', {phase}, 'exit code 3', incarnation, md5(''),"
        f" now() + {pause}"
        " FROM managers",
        undo="DELETE FROM host_failures",
        group=kind,
        host=kind,
    )


BREAKS = {
    "ended": Break(
        do="UPDATE group_live SET discarding = true",
        undo="UPDATE group_live SET discarding = false",
        group="discarding",
        host="free",
    ),
    "no_work": Break(
        do="UPDATE open_task SET state = 4, not_before = now() + interval '1 hour'",
        undo="UPDATE open_task SET state = 0, not_before = NULL",
        group="delayed",
        host="no_work",
    ),
    "max_managers": Break(
        do="UPDATE task_groups SET max_managers = 1; INSERT INTO leases (group_id, manager_id)"
        f" SELECT {GROUP}, id FROM managers WHERE name = 'second'",
        undo="UPDATE leases SET state = 'ended', ended_at = now()",
        group="offered",
        host="max_managers",
    ),
    "enough": Break(
        do="INSERT INTO leases (group_id, manager_id)"
        f" SELECT {GROUP}, id FROM managers WHERE name = 'second'",
        undo="UPDATE leases SET state = 'ended', ended_at = now()",
        group="offered",
        host="enough",
    ),
    "no_role": Break(
        do="UPDATE user_group_managers SET role = 'read'",
        undo="UPDATE user_group_managers SET role = 'write'",
        group="no_manager",
        host="no_role",
    ),
    "removed": Break(
        do="UPDATE task_group_managers SET assignment_method = 'removed';"
        " DELETE FROM managers WHERE name = 'second'",
        undo="UPDATE task_group_managers SET assignment_method = 'user_specified'",
        group="member",
        host="removed",
    ),
    "not_named": Break(
        do="DELETE FROM task_group_managers; UPDATE task_groups SET assignment_method = 'user_specified'",
        undo="UPDATE task_groups SET assignment_method = 'tag_matched'",
        group="none_named",
        host="not_named",
    ),
    "tags": Break(
        do="DELETE FROM task_group_managers; UPDATE managers SET tags = '{}'",
        undo="UPDATE managers SET tags = '{gpu}'",
        group="tags",
        host="tags",
    ),
    "misfit": Break(
        do="UPDATE managers SET cores = '{7}'",
        undo="UPDATE managers SET cores = '{0,1}'",
        group="misfit",
        host="misfit",
    ),
    "setup_failed": host_failure("setup_failed", pause="NULL"),
    "quarantined": host_failure("quarantined", phase="'quarantined'", stored="tasks_failed"),
    "no_contact": Break(
        do="UPDATE manager_live SET last_contact_at = now() - interval '11 seconds'",
        undo="UPDATE manager_live SET last_contact_at = now()",
        group="no_contact",
        host="no_contact",
    ),
    "unreachable": host_failure("unreachable"),
    "workers_not_started": host_failure("workers_not_started"),
    "no_progress": host_failure("no_progress"),
    "suspected": host_failure("suspected", phase="'suspected'", stored="tasks_failed"),
    "draining": Break(
        do="UPDATE managers SET draining = true",
        undo=f"UPDATE managers SET draining = false WHERE id = {HOST}",
        group="draining",
        host="draining",
    ),
    "busy": Break(
        do=f"INSERT INTO leases (group_id, manager_id) VALUES ({OTHER}, {HOST})",
        undo="UPDATE leases SET state = 'ended', ended_at = now()",
        group="busy",
        host="busy",
    ),
    "cleanup": Break(
        do="INSERT INTO environments (manager_id, group_id, state, fingerprint)"
        f" VALUES ({HOST}, {GROUP}, 'owed', '')",
        undo="DELETE FROM environments",
        group="cleanup",
        host="cleanup",
    ),
    "unclean": Break(
        do="INSERT INTO environments (manager_id, group_id, state, fingerprint)"
        f" VALUES ({HOST}, {OTHER}, 'tearing_down', '')",
        undo="DELETE FROM environments",
        group="unclean",
        host="unclean",
    ),
}


async def one_host_and_one_task(w: World) -> UUID:
    """A free host that is named for the group, a draining second one, and another group without work."""
    plan = {"cpu_binding": {"strategy": "exclusive", "cores": [0, 1]}}
    group = await w.group(tags={"gpu"}, worker_allocation_plan=plan)
    await w.group("other")
    await w.submit(group)
    host, second = await w.host(tags=["gpu"]), await w.host(tags=["gpu"])
    await w.rows("UPDATE managers SET cores = '{0,1}'")
    await w.rows(
        "UPDATE managers SET draining = true, name = 'second' WHERE uuid = %s", second.manager_id
    )
    await add_managers(w.store, group, [host.manager_id], w.user_id)
    return group


async def codes(w: World, group: UUID) -> tuple[str, str | None]:
    """The reasons of the group and of the host, without messages that no relay takes in this test."""
    await w.pokes()
    explanation = await explain_group(w.store, group)
    hosts = [host.code for host in explanation.hosts if host.manager_name == "host"]
    return explanation.code, hosts[0] if hosts else None


@pytest.mark.parametrize("code", BY_CODE)
async def test_a_broken_condition_stops_the_offer_and_is_the_reason(
    database: str, code: str
) -> None:
    async with world(database) as w:
        group = await one_host_and_one_task(w)
        assert await codes(w, group) == ("assigning", "free")
        for statement in BREAKS[code].do.split("; "):
            await w.rows(statement)
        expected = (BREAKS[code].group, BREAKS[code].host)
        assert await codes(w, group) == expected
        assert (await assign_round(w.store)).offered == 0
        await w.rows(BREAKS[code].undo)
        assert await codes(w, group) == ("assigning", "free")
        assert (await assign_round(w.store)).offered == 1


@contextmanager
def inverted(predicate: Predicate) -> Iterator[None]:
    """Invert a condition in the one list."""
    passing = predicate.passing
    object.__setattr__(predicate, "passing", lambda *facts: ~passing(*facts))
    try:
        yield
    finally:
        object.__setattr__(predicate, "passing", passing)


BY_SET = [
    code
    for code, one in BY_CODE.items()
    if one.scope not in (Scope.GROUP, Scope.MEMBERS, Scope.FAILURES)
]
"""The decision reads the set of these for every group. Others are facts of it (``missing``, ``members``), or
are asked only for groups for which some host has failed."""


@pytest.mark.parametrize("code", BY_SET)
async def test_an_inverted_predicate_changes_offer_and_explanation_together(
    database: str, code: str
) -> None:
    async with world(database) as w:
        group = await one_host_and_one_task(w)
        await w.rows("DELETE FROM managers WHERE name = 'second'")
        with inverted(BY_CODE[code]):
            explained, of_host = await codes(w, group)
            assert (await assign_round(w.store)).offered == 0
            assert (explained, of_host) == (BREAKS[code].group, code)
        for statement in BREAKS[code].do.split("; "):
            await w.rows(statement)
        with inverted(BY_CODE[code]):
            left = await codes(w, group)
            # An environment to be torn down breaks two conditions: one of them is inverted.
            expected = ("unclean", "unclean") if code == "cleanup" else ("assigning", "free")
            assert left == expected
            # Some facts are checked again where the offer is written.
            refused = {"cleanup", "busy", "no_role", "draining", "no_contact"}
            assert (await assign_round(w.store)).offered == (code not in refused)


async def random_facts(w: World) -> None:
    """Hosts and groups in every state, made by SQL with a fixed seed."""
    await w.group("template")
    await w.host()
    for statement in (
        "SELECT setseed(0.4)",
        "INSERT INTO managers (name, creator_id, tags, labels, draining, machine_id, cores)"
        " SELECT 'h' || i, creator_id, CASE WHEN random() < 0.5 THEN '{gpu}'::text[] ELSE '{}' END,"
        "  CASE WHEN random() < 0.5 THEN '{spare}'::text[] ELSE '{}' END, random() < 0.3,"
        "  CASE WHEN random() < 0.8 THEN 'm' || i END, '{0,1}'"
        " FROM managers, generate_series(1, 150) AS i",
        "INSERT INTO manager_live (manager_id, offline, last_contact_at)"
        " SELECT id, random() < 0.2, CASE WHEN random() < 0.8 THEN"
        "  now() - random() * interval '20 seconds' END"
        " FROM managers ON CONFLICT DO NOTHING",
        "INSERT INTO user_group_managers (user_group_id, manager_id, role)"
        " SELECT 1, id, CASE WHEN random() < 0.5 THEN 'write' ELSE 'read' END"
        " FROM managers WHERE random() < 0.8 ON CONFLICT DO NOTHING",
        "INSERT INTO task_groups (name, user_group_id, creator_id, worker_allocation_plan, tags,"
        "  priority, max_managers, assignment_method, kind)"
        " SELECT 'g' || i, user_group_id, creator_id, worker_allocation_plan,"
        "  CASE WHEN random() < 0.5 THEN '{gpu}'::text[] ELSE '{}' END, (random() * 9)::int,"
        "  CASE WHEN random() < 0.3 THEN 1 END,"
        "  CASE WHEN random() < 0.3 THEN 'user_specified' ELSE 'tag_matched' END, 'managed'"
        " FROM task_groups, generate_series(1, 150) AS i",
        "INSERT INTO group_live (group_id, state, terminal_at, discarding, settled_at, result, total,"
        "  unfinished)"
        " SELECT id, s.state, CASE WHEN s.state IN ('complete', 'cancelled') THEN now() END,"
        "  random() < 0.2,"
        "  CASE WHEN s.state = 'complete' THEN now() END,"
        "  CASE WHEN s.state = 'complete' THEN 'success' END, 1, 1"
        " FROM task_groups AS g CROSS JOIN LATERAL (SELECT (ARRAY['open', 'closed', 'complete',"
        "  'cancelled'])[1 + (hashint8(g.id) & 3)] AS state) AS s ON CONFLICT DO NOTHING",
        "UPDATE group_live SET total = 1, unfinished = 1",
        "INSERT INTO open_task (group_id, id, priority, state, not_before)"
        " SELECT g.group_id, g.group_id, 0, t.state,"
        "  CASE WHEN t.state = 4 THEN now() + (random() - 0.5) * interval '1 minute' END"
        " FROM group_live AS g CROSS JOIN LATERAL"
        "  (SELECT CASE WHEN hashint8(g.group_id + 7) & 1 = 0 THEN 0 ELSE 4 END AS state) AS t",
        "INSERT INTO leases (group_id, manager_id) SELECT g.id, m.id FROM managers AS m"
        " JOIN task_groups AS g ON g.id = m.id WHERE random() < 0.3",
        "INSERT INTO environments (manager_id, group_id, state, fingerprint)"
        " SELECT m.id, g.id, (ARRAY['preparing', 'ready', 'tearing_down', 'gone', 'owed'])"
        "  [1 + mod(m.id + g.id, 5)], '' FROM managers AS m, task_groups AS g WHERE random() < 0.02",
        "INSERT INTO hook_runs (manager_id, group_id, kind, state)"
        " SELECT m.id, g.id, 'setup', 'failed' FROM managers AS m, task_groups AS g"
        " WHERE random() < 0.02",
    ):
        await w.rows(statement)


async def test_the_round_reads_every_host_in_contact_and_every_group_with_unfinished_tasks(
    database: str,
) -> None:
    async with world(database) as w:
        await random_facts(w)
        await w.rows("UPDATE group_live SET unfinished = 0, total = 0 WHERE random() < 0.2")
        await _compare(w)


async def _compare(w: World) -> None:
    async with w.database.transaction() as connection:  # one now() for all
        of_hosts = fact_parameters(w.store)
        of_groups = {"hosts": 5}
        hosts = await fetch_all(connection, HostRow, hosts_statement("ORDER BY m.id"), of_hosts)
        groups = await fetch_all(connection, GroupRow, groups_statement("ORDER BY g.id"), of_groups)
        assert len(hosts) == await w.value("SELECT count(*) FROM managers") > 100
        assert len(groups) == await w.value("SELECT count(*) FROM task_groups") > 100
        fleet = await load_fleet(connection, w.store)
        in_contact = [host for host in hosts if host.fact(fleet.now, 10.0).in_contact]
        kept = [host for host in hosts if host in in_contact or host.lease_number is not None]
        holders = {host.lease_group for host in hosts}
        wanted = [g for g in groups if (g.goes_on and g.unfinished > 0) or g.number in holders]
        assert 20 < len(kept) < len(hosts) - 20
        assert 20 < len(wanted) < len(groups) - 20
        assert await fetch_all(connection, HostRow, HOSTS_IN_CONTACT, of_hosts) == kept
        of_round = await fetch_all(connection, GroupRow, GROUPS_OF_ROUND, of_groups)
        assert of_round == wanted
        assert sorted(fleet.snapshot.hosts) == [host.number for host in kept]
        assert sorted(fleet.snapshot.groups) == [group.number for group in wanted]
        assert len(fleet.snapshot.leases) == len([h for h in kept if h.lease_number is not None])


def test_every_condition_can_be_broken_and_be_the_reason_of_a_group() -> None:
    assert list(BREAKS) == list(BY_CODE)
    assert {one.code for one in PREDICATES} <= NONE_LEFT.keys()
