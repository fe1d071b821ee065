"""The round and `explain` decide by one list of conditions, and SQL decides nothing besides."""

# ruff: noqa: S608 - the statements are constants of this file

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

import pytest

from mitosis.contracts.explain import Explanation
from mitosis.store.groups.assignment import add_managers
from mitosis.store.groups.explain import explain_group
from mitosis.store.leases import eligibility, scheduler
from mitosis.store.leases.capacity import progress_parameters
from mitosis.store.leases.eligibility import CONDITIONS, Condition, GroupFacts, HostFacts
from mitosis.store.leases.reasons import NONE_LEFT
from mitosis.store.leases.scheduler import BEFORE_FIRST, ROUND_GROUPS, ROUND_HOSTS, assign_round
from mitosis.store.pg.rows import fetch_all
from mitosis.store.store import Store
from tests.support.campaigns import World, world

BY_CODE = {condition.code: condition for condition in CONDITIONS}
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
        host="free",
    ),
    "enough": Break(
        do="INSERT INTO leases (group_id, manager_id)"
        f" SELECT {GROUP}, id FROM managers WHERE name = 'second'",
        undo="UPDATE leases SET state = 'ended', ended_at = now()",
        group="offered",
        host="free",
    ),
    "no_role": Break(
        do="UPDATE user_group_managers SET role = 'read'",
        undo="UPDATE user_group_managers SET role = 'write'",
        group="no_manager",
        host="no_role",
    ),
    "member": Break(
        do="UPDATE task_group_managers SET assignment_method = 'removed';"
        " UPDATE task_groups SET assignment_method = 'user_specified'",
        undo="UPDATE task_group_managers SET assignment_method = 'user_specified'",
        group="none_named",
        host="member",
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


def codes(explanation: Explanation) -> tuple[str, str | None]:
    hosts = [host.code for host in explanation.hosts if host.manager_name == "host"]
    return explanation.code, hosts[0] if hosts else None


@pytest.mark.parametrize("code", BY_CODE)
async def test_a_broken_condition_stops_the_offer_and_is_the_reason(
    database: str, code: str
) -> None:
    async with world(database) as w:
        group = await one_host_and_one_task(w)
        assert codes(await explain_group(w.store, group)) == ("assigning", "free")
        for statement in BREAKS[code].do.split("; "):
            await w.rows(statement)
        expected = (BREAKS[code].group, BREAKS[code].host)
        assert codes(await explain_group(w.store, group)) == expected
        assert (await assign_round(w.store)).offered == 0
        await w.rows(BREAKS[code].undo)
        assert codes(await explain_group(w.store, group)) == ("assigning", "free")
        assert (await assign_round(w.store)).offered == 1


@contextmanager
def inverted(condition: Condition) -> Iterator[None]:
    """Invert the predicate of a condition in the one list."""
    kind = next(name for name in ("of_group", "of_host", "of_pair") if getattr(condition, name))
    holds = getattr(condition, kind)
    object.__setattr__(condition, kind, lambda *facts: not holds(*facts))
    try:
        yield
    finally:
        object.__setattr__(condition, kind, holds)


@pytest.mark.parametrize("code", BY_CODE)
async def test_an_inverted_predicate_changes_offer_and_explanation_together(
    database: str, code: str
) -> None:
    condition = BY_CODE[code]
    async with world(database) as w:
        group = await one_host_and_one_task(w)
        await w.rows("UPDATE managers SET name = 'gone' WHERE name = 'second'")
        await w.rows("DELETE FROM managers WHERE name = 'gone'")
        with inverted(condition):
            explained, of_host = codes(await explain_group(w.store, group))
            summary = NONE_LEFT[code]
            assert (await assign_round(w.store)).offered == 0
            assert of_host == ("free" if condition.of_group else code)
            assert explained in (code, BREAKS[code].group, "settling", "no_work", "enough")
            assert summary is not None
        if condition.prefiltered or code in {"enough", "no_work"}:
            return
        for statement in BREAKS[code].do.split("; "):
            await w.rows(statement)
        with inverted(condition):
            left = codes(await explain_group(w.store, group))
            # An environment to be torn down breaks two conditions: one of them is inverted.
            expected = ("unclean", "unclean") if code == "cleanup" else ("assigning", "free")
            assert left == expected
            # Role and membership are checked again where the offer is written.
            refused = {"cleanup", "busy", "member", "no_role"}
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


async def test_the_statements_of_the_round_select_by_nothing_but_the_conditions_named_for_it(
    database: str,
) -> None:
    """Facts without any filter, filtered by the conditions, are the facts that the round reads."""
    async with world(database) as w:
        await random_facts(w)
        await _compare(w)


async def _compare(w: World) -> None:
    async with w.database.transaction() as connection:  # one now() for all
        of_hosts: dict[str, Any] = {
            "suspect_after": 10.0,
            "group_number": None,
            "quarantine_after": 5,
        }
        priority, number = BEFORE_FIRST
        of_groups = {
            **progress_parameters(w.store),
            "hosts": 5,
            "after_id": number,
            "after_priority": priority,
            "limit": 1000,
        }
        hosts = await fetch_all(
            connection, HostFacts, eligibility.HOST_FACTS + " ORDER BY m.id", of_hosts
        )
        groups = await fetch_all(
            connection, GroupFacts, eligibility.GROUP_FACTS + " ORDER BY g.id", of_groups
        )
        assert len(hosts) == await w.value("SELECT count(*) FROM managers") > 100
        assert len(groups) == await w.value("SELECT count(*) FROM task_groups") > 100
        prefiltered = [condition for condition in CONDITIONS if condition.prefiltered]
        assert [c.code for c in prefiltered] == ["ended", "no_work", "no_contact"]

        kept = [h.number for h in hosts if all(c.of_host(h) for c in prefiltered if c.of_host)]
        wanted = [g.number for g in groups if all(c.of_group(g) for c in prefiltered if c.of_group)]
        of_round = await fetch_all(connection, HostFacts, ROUND_HOSTS, of_hosts)
        page = await fetch_all(connection, GroupFacts, ROUND_GROUPS, of_groups)
        assert 20 < len(kept) < len(hosts) - 20
        assert 20 < len(wanted) < len(groups) - 20
        assert [host.number for host in of_round] == kept
        assert sorted(group.number for group in page) == wanted
        order = [(-group.priority, group.number) for group in page]
        assert order == sorted(order)


def test_every_condition_can_be_broken() -> None:
    assert list(BREAKS) == list(BY_CODE)
