"""Who is a member of a task group decides what is offered to it (C-32): effects, on the real database."""

# ruff: noqa: S608 - the statements are constants of this file

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.errors import NotFound, PermissionDenied
from mitosis.contracts.http import GroupManagerInfo, RegisterManager, TaskGroupUpdate
from mitosis.store.groups.assignment import (
    add_managers,
    listed_managers,
    refresh_managers,
    remove_managers,
)
from mitosis.store.groups.definition import update_group
from mitosis.store.groups.explain import explain_group
from mitosis.store.groups.views import read_group
from mitosis.store.leases import actions, scheduler
from mitosis.store.leases.actions import Done
from mitosis.store.leases.fleet import GroupRow, HostRow, groups_statement, hosts_statement
from mitosis.store.leases.fleet_snapshot import fact_parameters
from mitosis.store.leases.membership import is_member, with_membership
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.registration import register_manager
from mitosis.store.managers.tags import set_tags
from mitosis.store.managers.views import observe_manager
from mitosis.store.pg.rows import fetch_all
from mitosis.store.users.accounts import add_member, create_user
from tests.support.campaigns import Host, World, held, until_blocked, world


async def served(w: World, *hosts: Host) -> list[str | None]:
    """The task group that the round has given to each host."""
    await assign_round(w.store)
    views = [await observe_manager(w.store, host.manager_id) for host in hosts]
    return [view.lease.task_group_name if view.lease else None for view in views]


async def retag(w: World, host: Host, *tags: str) -> None:
    number = await w.value("SELECT id FROM managers WHERE uuid = %s", host.manager_id)
    async with w.database.transaction() as connection:
        await set_tags(connection, number, tags)


async def listed(w: World, group: UUID) -> dict[UUID, GroupManagerInfo]:
    return {one.manager_id: one for one in await listed_managers(w.store, group)}


async def reason(w: World, group: UUID, host: Host) -> str:
    explained = await explain_group(w.store, group)
    return next(one.line for one in explained.hosts if one.manager_id == host.manager_id)


async def let_go(w: World, host: Host) -> None:
    """The agent says that nothing runs under its lease any more."""
    await w.rows("UPDATE leases SET state = 'ended', ended_at = now() WHERE epoch = %s", host.epoch)


@pytest.mark.spec("S000-01", "S000-13", "S000-14", "C-32")
async def test_only_hosts_that_a_user_added_serve_a_group_of_named_hosts(database: str) -> None:
    async with world(database) as w:
        host, other = await w.host(), await w.host()
        group = await w.group(assignment_method="user_specified")
        await w.submit(group, 9)
        assert "none is named" in str((await read_group(w.store, group)).waiting_for)
        assert await served(w, host, other) == [None, None]
        for _ in range(2):  # again is success
            await add_managers(w.store, group, [other.manager_id], w.user_id)
        assert set(await listed(w, group)) == {other.manager_id}
        assert await served(w, host, other) == [None, "campaign"]
        with pytest.raises(NotFound, match="not a member"):
            await remove_managers(w.store, group, [host.manager_id], w.user_id)


@pytest.mark.spec("S000-14", "C-32", "S002-29")
@pytest.mark.parametrize("method", ["user_specified", "tag_matched"])
async def test_a_removed_host_finishes_returns_the_rest_and_comes_back_only_when_added(
    database: str, method: str
) -> None:
    async with world(database) as w:
        host, other = await w.host(tags=["gpu"]), await w.host(tags=["gpu"])
        group = await w.group(assignment_method=method, tags={"gpu"})
        if method == "user_specified":
            both = [host.manager_id, other.manager_id]
            await add_managers(w.store, group, both, w.user_id)
        await w.submit(group, 2)
        assert await served(w, host, other) == ["campaign", None]
        await host.take(group)
        running, waiting = (await host.claim()).tasks
        await host.renew(started=[running])
        await w.pokes()

        for _ in range(2):  # again is success
            await remove_managers(w.store, group, [host.manager_id], w.user_id)
        assert ("manager", host.manager_id) in await w.pokes()
        answer = await host.renew(returned=[waiting])
        assert answer.standing == "ending"
        assert answer.order is not None
        assert not answer.order.kill
        assert (await host.claim()).tasks == []
        assert await served(w, other) == ["campaign"], "the rest goes to the other host"
        await other.take(group)
        assert [task.task_id for task in (await other.claim()).tasks] == [waiting.task_id]
        await host.finish([running])
        assert (await read_group(w.store, group)).tasks_succeeded == 1

        await let_go(w, host)
        await w.submit(group, 90)
        for _ in range(2):
            assert await served(w, host) == [None]
            assert "was removed" in await reason(w, group, host)
            await refresh_managers(w.store, group)
        assert set(await listed(w, group)) == {other.manager_id}
        await add_managers(w.store, group, [host.manager_id], w.user_id)
        assert await served(w, host) == ["campaign"]


async def test_an_offer_is_withdrawn_from_a_host_that_is_removed(database: str) -> None:
    async with world(database) as w:
        host, group = await w.host(), await w.group()
        await w.submit(group)
        assert await served(w, host) == ["campaign"]
        await remove_managers(w.store, group, [host.manager_id], w.user_id)
        assert await served(w, host) == [None]


@pytest.mark.spec("S000-13", "S000-18", "C-32")
async def test_a_host_that_a_user_added_is_used_without_the_tags(database: str) -> None:
    async with world(database) as w:
        host, group = await w.host(tags=["cpu"]), await w.group(tags={"gpu"})
        await w.submit(group)
        assert await served(w, host) == [None]
        await add_managers(w.store, group, [host.manager_id], w.user_id)
        assert (await refresh_managers(w.store, group)).user_specified_kept == [host.manager_id]
        assert (await listed(w, group))[host.manager_id].added_by_user_id == w.user_id
        assert await served(w, host) == ["campaign"]


@pytest.mark.spec("S000-02", "S000-15", "S000-16", "S000-20", "C-32", "S002-29")
async def test_new_tags_of_a_group_have_no_effect_before_a_refresh(database: str) -> None:
    async with world(database) as w:
        gpu, cpu = await w.host(tags=["gpu"]), await w.host(tags=["cpu"])
        group = await w.group(tags={"gpu"})
        await w.submit(group, 9)
        await update_group(w.store, group, TaskGroupUpdate(tags=frozenset({"cpu"})))
        assert await served(w, gpu, cpu) == ["campaign", None]
        assert "match again: mitosis group managers campaign --refresh" in await reason(
            w, group, cpu
        )
        await gpu.take(group)
        tasks = (await gpu.claim(1)).tasks

        done = await refresh_managers(w.store, group)
        assert (done.added_managers, done.removed_managers) == ([cpu.manager_id], [gpu.manager_id])
        again = await refresh_managers(w.store, group)
        assert (again.added_managers, again.removed_managers) == ([], [])
        assert (await gpu.claim()).standing == "ending"
        await gpu.finish(tasks)
        await let_go(w, gpu)
        assert await served(w, gpu, cpu) == [None, "campaign"]
        assert await reason(w, group, gpu) == "lacks cpu; the task group needs all of cpu"


@pytest.mark.spec("S000-16", "S000-20", "C-32", "S002-29")
async def test_new_tags_of_a_host_have_no_effect_before_a_refresh(database: str) -> None:
    async with world(database) as w:
        host = await w.host(tags=["gpu"])
        gpu = await w.group("gpu", tags={"gpu"})
        cpu = await w.group("cpu", tags={"cpu"}, priority=1)
        for group in (gpu, cpu):
            await w.submit(group)
        await retag(w, host, "tmp")
        await retag(w, host, "cpu")
        new = await w.group("new", tags={"gpu"}, priority=2)
        await w.submit(new)
        assert await served(w, host) == ["gpu"]
        assert "tags have changed" in await reason(w, cpu, host)
        assert await reason(w, new, host) == "lacks gpu; the task group needs all of gpu"
        removed = (await refresh_managers(w.store, gpu)).removed_managers
        assert removed == [host.manager_id], "and its offer is withdrawn"
        assert await served(w, host) == [None]
        assert (await refresh_managers(w.store, cpu)).added_managers == [host.manager_id]
        assert await served(w, host) == ["cpu"]


async def test_former_tags_are_kept_only_while_a_group_was_matched_by_them(database: str) -> None:
    async with world(database) as w:
        host = await w.host(tags=["a"])
        former = "SELECT tags FROM former_manager_tags ORDER BY until_version"
        await retag(w, host, "b")
        assert await w.rows(former) == []
        group = await w.group(tags={"b"})
        for tag in ("c", "d", "d"):
            await retag(w, host, tag)
        assert [row["tags"] for row in await w.rows(former)] == [["b"]]
        await w.group("second", tags={"d"})
        await retag(w, host, "e")
        assert [row["tags"] for row in await w.rows(former)] == [["b"], ["d"]]
        await refresh_managers(w.store, group)
        await retag(w, host, "f")
        assert [row["tags"] for row in await w.rows(former)] == [["d"], ["e"]]


@pytest.mark.spec("C-32", "S000-02")
async def test_a_host_is_matched_when_it_registers_and_at_its_first_hello(database: str) -> None:
    async with world(database) as w:
        gpu, cpu = await w.group("gpu", tags={"gpu"}), await w.group("cpu", tags={"cpu"})
        for group in (gpu, cpu):
            await w.submit(group)
        registered = await w.host(tags=["gpu"], hello=False)
        assert set(await listed(w, gpu)) == {registered.manager_id}
        assert await served(w, registered) == [None]
        await retag(w, registered, "cpu")
        assert await listed(w, gpu) == {}
        await w.pokes()
        await registered.hello()
        assert ("scheduler", None) in await w.pokes()
        assert await served(w, registered) == ["cpu"]


@pytest.mark.spec("S000-03", "S000-158", "S000-17", "C-32")
async def test_roles_are_checked_when_a_host_is_added_and_at_each_offer(database: str) -> None:
    async with world(database) as w:
        bob = await create_user(w.store, "bob")
        foreign, _ = await register_manager(w.store, RegisterManager(name="bobs"), bob.user_id)
        host, group = await w.host(), await w.group(assignment_method="user_specified")
        await w.submit(group)
        with pytest.raises(PermissionDenied, match=f"{foreign} has no write role"):
            await add_managers(w.store, group, [host.manager_id, foreign], w.user_id)
        with pytest.raises(NotFound, match=f"no such manager: {group}"):
            await add_managers(w.store, group, [host.manager_id, group], w.user_id)
        assert await listed(w, group) == {}, "all or none"
        await add_managers(w.store, group, [host.manager_id], w.user_id)
        await w.rows("UPDATE user_group_managers SET role = 'read'")
        assert await served(w, host) == [None]
        assert "no write role" in await reason(w, group, host)
        await w.rows("UPDATE user_group_managers SET role = 'write'")
        assert await served(w, host) == ["campaign"]


@pytest.mark.spec("S000-03", "S000-158")
@pytest.mark.parametrize("lost", ["membership", "role"])
async def test_an_offer_is_not_written_from_facts_that_are_no_longer_true(
    database: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Between the read of the facts and the write of the offer the host loses what it needs."""
    async with world(database) as w:
        host, group = await w.host(), await w.group()
        await w.submit(group)
        write = actions.carry_out

        async def late(*facts: Any) -> Done:
            if lost == "role":
                await w.rows("UPDATE user_group_managers SET role = 'read'")
            else:
                await remove_managers(w.store, group, [host.manager_id], w.user_id)
            return await write(*facts)

        monkeypatch.setattr(scheduler, "carry_out", late)
        assert await served(w, host) == [None]


async def test_a_removal_waits_for_an_offer_that_is_being_written(database: str) -> None:
    async with world(database) as w, held(database) as transaction:
        host, group = await w.host(), await w.group()
        await w.submit(group)
        await assign_round(w.on(transaction).store)
        removal = asyncio.create_task(remove_managers(w.store, group, [host.manager_id], w.user_id))
        await until_blocked(w)
        await transaction.commit()
        await removal
        assert (await observe_manager(w.store, host.manager_id)).lease is None


@pytest.mark.spec("S000-17", "S000-19", "S000-09", "C-01")
async def test_all_tags_or_any_and_the_matched_ones_are_shown(database: str) -> None:
    async with world(database) as w:
        both, one = await w.host(tags=["a", "b", "c"]), await w.host(tags=["b", "x"])
        neither = await w.host(tags=["x"])
        bob = await create_user(w.store, "bob")
        await add_member(w.store, "alice", "bob", "admin")
        for groups in ((), ("alice:read",)):
            spec = RegisterManager(name="bobs", tags=frozenset({"a", "b"}), groups=groups)
            await register_manager(w.store, spec, bob.user_id)
        expected: Sequence[tuple[Any, dict[UUID, list[str]]]] = (
            ("all", {both.manager_id: ["a", "b"]}),
            ("any", {both.manager_id: ["a", "b"], one.manager_id: ["b"]}),
        )
        for match, tags in expected:
            group = await w.group(name=match, tags={"a", "b"}, tag_match=match)
            await w.submit(group, 9)
            for _ in ("at once", "and although tags have changed"):
                members = await listed(w, group)
                assert {key: one.matched_tags for key, one in members.items()} == tags
                assert {one.assignment_method for one in members.values()} == {"tag_matched"}
                await update_group(w.store, group, TaskGroupUpdate(tags=frozenset({"z"})))
            offered = await served(w, both, one, neither)
            assert [name == match for name in offered] == [
                host.manager_id in tags for host in (both, one, neither)
            ]
            await w.rows("UPDATE leases SET state = 'ended', ended_at = now()")
            await w.cancel(group)


async def test_sql_and_python_agree_on_who_is_a_member(database: str) -> None:
    """Random tags, versions and choices: each pair is judged by the expression and by the function."""
    async with world(database) as w:
        await w.group("template")
        await w.host()
        some: Any = (
            "ARRAY(SELECT t FROM unnest('{a,b,c}'::text[]) AS t WHERE random() < 0.4 + 0 * i)"
        )
        for statement in (
            "SELECT setseed(0.7)",
            "INSERT INTO managers (name, creator_id, tags)"
            f" SELECT 'h' || i, creator_id, {some} FROM managers, generate_series(1, 40) AS i",
            "INSERT INTO manager_live (manager_id) SELECT id FROM managers ON CONFLICT DO NOTHING",
            "INSERT INTO former_manager_tags (manager_id, until_version, tags)"
            f" SELECT m.id, i, {some} FROM managers AS m, generate_series(1, 30) AS i"
            "  WHERE random() < 0.05",
            "INSERT INTO task_groups (name, user_group_id, creator_id, worker_allocation_plan, tags,"
            "  tag_match, member_tags, member_tag_match, member_version, assignment_method)"
            f" SELECT 'g' || i, user_group_id, creator_id, worker_allocation_plan, {some},"
            "   CASE WHEN random() < 0.5 THEN 'all' ELSE 'any' END,"
            f"  CASE WHEN random() < 0.5 THEN {some} END,"
            "   CASE WHEN random() < 0.3 THEN 'all' WHEN random() < 0.5 THEN 'any' END,"
            "   (random() * 30)::int,"
            "   CASE WHEN random() < 0.3 THEN 'user_specified' ELSE 'tag_matched' END"
            "  FROM task_groups, generate_series(1, 40) AS i",
            "INSERT INTO group_live (group_id) SELECT id FROM task_groups ON CONFLICT DO NOTHING",
            "INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method)"
            " SELECT g.id, m.id, (ARRAY['tag_matched', 'user_specified', 'removed'])"
            "  [1 + (random() * 2)::int] FROM task_groups AS g, managers AS m WHERE random() < 0.1",
        ):
            await w.rows(statement)
        async with w.database.connection() as connection:
            of_hosts = fact_parameters(w.store)
            hosts = await fetch_all(connection, HostRow, hosts_statement(""), of_hosts)
            groups = await fetch_all(connection, GroupRow, groups_statement(""), {"hosts": 1})
        by_sql = await w.rows(
            with_membership(
                "SELECT g.id, m.id AS host FROM task_groups AS g, managers AS m WHERE $member$"
            )
        )
        by_python = {(g.number, h.number) for g in groups for h in hosts if is_member(h, g)}
        assert {(row["id"], row["host"]) for row in by_sql} == by_python
        assert 300 < len(by_python) < len(hosts) * len(groups) - 300
