"""A task group whose setup has failed on every host that may serve it: when it ends, and when it waits."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.errors import TaskGroupClosed
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.http import TaskGroupUpdate
from mitosis.store.groups.assignment import remove_managers
from mitosis.store.groups.definition import update_group
from mitosis.store.groups.views import read_group
from mitosis.store.leases.failures import lift_failures
from mitosis.store.leases.look import look
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.managers.release import release_over
from tests.support.campaigns import Host, World, hook, world
from tests.support.failed_setups import fail_setup

HOOK: dict[str, Any] = {"environment_setup_hook": {"command": ["prepare"]}}


async def failed_on(w: World, group: UUID, *exit_codes: int) -> list[Host]:
    """New hosts, on each of which the setup of the group ends so."""
    hosts: list[Host] = []
    for exit_code in exit_codes:
        host = await w.host()
        await w.rows(
            "UPDATE managers SET name = %s WHERE uuid = %s", f"h{len(hosts)}", host.manager_id
        )
        assert (await assign_round(w.store)).offered == 1
        await fail_setup(group, host, exit_code=exit_code)
        hosts.append(host)
    return hosts


async def end(w: World, group: UUID) -> Any:
    """What the workflow does: each step that its view asks for."""
    assert (await w.control.observe_task_group(group)).setup_failed
    await w.control.end_after_failed_setups(group)
    await w.discard_all(group)
    await w.control.finalize(group)
    return await w.control.settle(group)


async def waits(w: World, group: UUID) -> bool:
    """Whether nothing ends it: the view does not ask for it, no look finds it, and the step has no effect."""
    asked = (await w.control.observe_task_group(group)).setup_failed
    found = (await look(w.store)).groups
    after = await w.control.end_after_failed_setups(group)
    return not (asked or found or after.discarding)


async def test_a_closed_group_ends_with_the_reason_of_every_host(database: str) -> None:
    async with world(database) as w:
        group = await w.group(**HOOK)
        await w.submit(group, 3)
        await w.close(group)
        first, second = await failed_on(w, group, 3, 3)
        third = await w.host()
        await assign_round(w.store)
        assert await waits(w, group), "the third one prepares"
        await fail_setup(group, third, message="killed after 60 s")
        view = await end(w, group)
        assert (view.settled, view.result, view.cancelled) == (True, "setup_failed", 3)
        info = await read_group(w.store, group)
        assert info.setup_failed
        assert info.reason == "setup failed on h0, h1: exit code 3; on host: killed after 60 s"
        await first.hello()
        await second.hello()
        assert (await assign_round(w.store)).offered == 0, "it has ended"
        await w.check()


@pytest.mark.parametrize(
    ("setting", "closed", "ends"),
    [
        ("end_when_closed", True, True),
        ("end_when_closed", False, False),
        ("end", True, True),
        ("end", False, True),
        ("wait", True, False),
        ("wait", False, False),
    ],
)
async def test_the_setting_says_whether_it_ends(
    database: str, setting: Any, *, closed: bool, ends: bool
) -> None:
    async with world(database) as w:
        group = await w.group(on_setup_failure=setting, **HOOK)
        await w.submit(group)
        if closed:
            await w.close(group)
        await failed_on(w, group, 3)
        assert await waits(w, group) != ends
        waiting = (await read_group(w.store, group)).waiting_for or ""
        if ends:
            assert (await read_group(w.store, group)).reason == "setup failed on h0: exit code 3"
            with pytest.raises(TaskGroupClosed):
                await w.submit(group)
            return
        assert waiting.startswith("setup failed on h0: exit code 3; it waits for another host")
        newcomer = await w.host()
        assert (await assign_round(w.store)).offered == 1, "it returns when a host appears"
        await newcomer.take(group)
        await newcomer.finish((await newcomer.claim()).tasks)
        assert (await w.control.observe_task_group(group)).succeeded == 1


async def test_a_changed_setting_counts_at_once(database: str) -> None:
    async with world(database) as w:
        group = await w.group(**HOOK)
        await w.submit(group)
        await failed_on(w, group, 3)
        assert await waits(w, group)
        await update_group(w.store, group, TaskGroupUpdate(on_setup_failure="end"))
        assert (await end(w, group)).result == "setup_failed"


Change = Callable[[World, UUID, Host], Awaitable[None]]
WAITS_FOR: dict[str, Change] = {}
"""What makes a closed group wait although a setup has failed; the first host has failed."""


def waits_for(change: Change) -> Change:
    WAITS_FOR[change.__name__] = change
    return change


@waits_for
async def a_new_host(w: World, _: UUID, __: Host) -> None:
    await w.host()


@waits_for
async def a_host_that_never_started(w: World, _: UUID, __: Host) -> None:
    await w.host(hello=False)


@waits_for
async def a_draining_host(w: World, _: UUID, __: Host) -> None:
    other = await w.host()
    await drain_manager(w.store, other.manager_id, reason=None)


@waits_for
async def a_host_that_is_stopped(w: World, _: UUID, __: Host) -> None:
    other = await w.host()
    await say_goodbye(w.store, other.manager_id, None)


@waits_for
async def a_host_that_is_tried_again_after_a_pause(w: World, group: UUID, __: Host) -> None:
    other = await w.host()
    assert (await assign_round(w.store)).offered == 1
    await fail_setup(group, other, state="waiting", message="no process")


@waits_for
async def a_new_process_of_the_agent(_: World, __: UUID, host: Host) -> None:
    await host.hello()


@waits_for
async def a_verb(w: World, group: UUID, host: Host) -> None:
    await lift_failures(w.store, host.manager_id, group, (HostFailureKind.SETUP_FAILED,))


@pytest.mark.parametrize("change", WAITS_FOR.values(), ids=WAITS_FOR.keys())
async def test_it_waits_for(database: str, change: Change) -> None:
    async with world(database) as w:
        group = await w.group(**HOOK)
        await w.submit(group)
        (host,) = await failed_on(w, group, 3)
        await change(w, group, host)
        await w.close(group)
        assert await waits(w, group)


async def test_what_keeps_the_last_other_host_away_is_found_by_a_look(database: str) -> None:
    """No poke comes of it: the user removes the host, its tags or its role change, or it is too small."""
    async with world(database) as w:
        group = await w.group(**HOOK)
        await w.submit(group)
        await failed_on(w, group, 3)
        other = await w.host(hello=False)
        await w.close(group)
        assert await waits(w, group)
        await remove_managers(w.store, group, [other.manager_id], w.user_id)
        await w.pokes()
        assert (await look(w.store)).groups == (group,)
        assert (await end(w, group)).result == "setup_failed"
        assert (await look(w.store)).groups == ()


async def test_hosts_that_are_too_small_do_not_count(database: str) -> None:
    async with world(database) as w:
        await w.host()
        plan = {"worker_count": 1, "cpu_binding": {"strategy": "exclusive", "cores": [7]}}
        big = await w.host(hello=False)
        await big.hello(cores=(7,))
        group = await w.group(worker_allocation_plan=plan, **HOOK)
        await w.submit(group)
        await w.close(group)
        assert (await assign_round(w.store)).offered == 1
        await fail_setup(group, big, exit_code=3)
        assert (await end(w, group)).result == "setup_failed"


async def test_what_a_removed_host_runs_is_waited_for_and_the_rest_ends(database: str) -> None:
    async with world(database) as w:
        group = await w.group(**HOOK)
        await w.submit(group, 2)
        await failed_on(w, group, 3)
        worked = await w.host()
        await assign_round(w.store)
        await worked.take(group, prepare=False)
        await worked.environment(group, "preparing", epoch=worked.epoch, hook=hook("running"))
        await worked.environment(group, "prepared", epoch=worked.epoch, hook=hook("succeeded"))
        tasks = (await worked.claim(1)).tasks
        await w.close(group)
        await remove_managers(w.store, group, [worked.manager_id], w.user_id)
        assert await waits(w, group), "its task runs"
        await worked.finish(tasks)
        await w.pokes()
        await release_over(w.store, worked.manager_id, worked.epoch)
        assert ("task_group", group) in await w.pokes()
        await worked.clean(group)
        view = await end(w, group)
        assert (view.succeeded, view.cancelled) == (1, 1)
        assert view.result == "setup_failed"
