"""A settlement waits for teardowns that hosts in contact owe, for a bounded time, and no others (P9)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.lifecycle import TaskGroupResult
from mitosis.store.groups.cleanup import CLEANUP_MARGIN_SECONDS
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_lease
from tests.support.campaigns import Host, World, world

HOOK_SECONDS = 30
HOOK: dict[str, Any] = {"command": ["true"], "timeout": HOOK_SECONDS}
MOST = CLEANUP_MARGIN_SECONDS + HOOK_SECONDS


@asynccontextmanager
async def owing(database: str) -> AsyncIterator[tuple[World, UUID, Host]]:
    """A complete group whose only environment is owed: its agent died in the teardown and is back."""
    async with world(database) as w:
        group = await w.group(environment_teardown_hook=HOOK)
        await w.submit(group)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await w.close(group)
        await w.control.finalize(group)
        await release_lease(
            w.store,
            ReleaseRequest(
                manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.GROUP_ENDED
            ),
        )
        await host.environment(group, "tear_down")
        assert (await host.hello()).owed == (group,)
        await w.pokes()
        yield w, group, host


async def pass_by(w: World, seconds: float) -> None:
    """Move what began into the past."""
    for statement in (
        "UPDATE environments SET changed_at = changed_at - make_interval(secs => %s)",
        "UPDATE group_live SET terminal_at = terminal_at - make_interval(secs => %s)",
        "UPDATE manager_live SET last_contact_at = last_contact_at - make_interval(secs => %s)",
    ):
        await w.rows(statement, seconds)


async def test_a_group_settles_after_the_teardown_that_a_host_in_contact_owes(
    database: str,
) -> None:
    async with owing(database) as (w, group, host):
        view = await w.control.settle(group)
        assert (view.settled, view.settleable, view.busy_environments) == (False, False, 1)
        assert view.waiting_for == "cleanup on host"
        assert view.cleanup_given_up_in_seconds == pytest.approx(MOST, abs=20)
        await host.environment(group, "tear_down")
        assert not (await w.control.settle(group)).settled
        await host.environment(group, "cleaned")
        assert ("task_group", group) in await w.pokes()
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, TaskGroupResult.SUCCESS)


async def stops(w: World, host: Host) -> None:
    await say_goodbye(w.store, host.manager_id, None)


async def is_lost(w: World, host: Host) -> None:
    assert (await w.control.expected()).overdue_managers == ()
    await pass_by(w, 91)
    expected = await w.control.expected()
    assert (expected.managers, expected.overdue_managers) == ((host.manager_id,),) * 2
    lost = ReleaseRequest(manager_id=host.manager_id, epoch=None, reason=ReleaseReason.LOST)
    await release_lease(w.store, lost)


@pytest.mark.parametrize("goes", [stops, is_lost])
async def test_the_end_of_contact_ends_the_wait(
    database: str, goes: Callable[[World, Host], Awaitable[None]]
) -> None:
    async with owing(database) as (w, group, host):
        await goes(w, host)
        assert ("task_group", group) in await w.pokes()
        assert (await w.control.observe_task_group(group)).cleanup_given_up_in_seconds is None
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, TaskGroupResult.TEARDOWN_DEGRADED)
        assert (await w.control.expected()).managers == ()
        assert (await host.hello()).owed == (group,), "the debt stays"


@pytest.mark.parametrize("begun", [False, True])
async def test_a_teardown_that_always_ends_its_agent_holds_up_no_group_for_ever(
    database: str, begun: bool
) -> None:
    """The time for it does not start again with each process, nor with each attempt."""
    async with owing(database) as (w, group, host):
        for _ in range(3):
            await pass_by(w, MOST / 4)
            assert not (await w.control.settle(group)).settled
            await host.environment(group, "tear_down")
            assert (await host.hello()).owed == (group,)
        if begun:
            await host.environment(group, "tear_down")
        await pass_by(w, MOST / 4)
        view = await w.control.settle(group)
        assert (view.settled, view.result) == (True, TaskGroupResult.TEARDOWN_DEGRADED)


async def test_each_teardown_of_a_host_has_its_time(database: str) -> None:
    """They run one after the other."""
    async with owing(database) as (w, group, _):
        before = (await w.control.observe_task_group(group)).cleanup_given_up_in_seconds
        assert before is not None
        other = await w.group("other", environment_teardown_hook=HOOK | {"timeout": 1000})
        await w.rows(
            "INSERT INTO environments (manager_id, group_id, state, fingerprint)"
            " SELECT m.id, g.id, 'owed', '' FROM managers AS m, task_groups AS g WHERE g.uuid = %s",
            other,
        )
        after = (await w.control.observe_task_group(group)).cleanup_given_up_in_seconds
        assert after == pytest.approx(before + 1000, abs=20)


async def test_what_is_owed_to_a_group_that_goes_on_needs_no_workflow(database: str) -> None:
    """It is finished by the agent; only a group that has ended waits for it."""
    async with world(database) as w:
        group = await w.group(environment_teardown_hook=HOOK)
        await w.submit(group)
        host = await w.leased_host(group)
        await say_goodbye(w.store, host.manager_id, host.epoch)
        await host.environment(group, "tear_down")
        await host.hello()
        assert (await w.control.expected()).managers == ()
        await w.cancel(group)
        assert (await w.control.expected()).managers == (host.manager_id,)
