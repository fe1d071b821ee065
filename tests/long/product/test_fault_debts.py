"""What a host owes for a task group is paid, whatever is deleted, killed or cut off in between (P5, P8, P9).

Real API, PostgreSQL, Temporal and agents; wires of the test in between.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mitosis.contracts.errors import NotFound
from mitosis.contracts.lifecycle import TaskGroupResult
from tests.support.fleet import Diary, Fleet, FleetHost, diary, it, shared_fleet
from tests.support.wire import Wire

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def deaf_host(it: Fleet) -> AsyncIterator[tuple[FleetHost, Wire]]:
    """A host whose way to Temporal is a wire of the test."""
    async with Wire(f"http://{it.temporal_address}").open() as wire:
        host = await it.host(start=False)
        host.temporal_address = wire.url.removeprefix("http://")
        await host.start()
        yield host, wire
        await host.kill()


async def cleaned(it: Fleet, host: FleetHost) -> None:
    async def nothing_left() -> bool:
        view = await host.view()
        return view.lease is None and not view.environments

    await it.until(nothing_left)


async def served(it: Fleet, diary: Diary, name: str = "next") -> None:
    """The next group, of the same name as the deleted one, works on a clean host."""
    group = await it.group(
        diary.task(name),
        name="campaign",
        environment_setup_hook=diary.hook(f"setup-{name}"),
    )
    info = await it.settled(group)
    assert info.result is TaskGroupResult.SUCCESS


async def deleted(it: Fleet, group: object) -> None:
    await it.client.delete_group(str(group))
    with pytest.raises(NotFound):
        await it.client.group(str(group))


@pytest.mark.spec("S000-139")
@pytest.mark.parametrize("fault", ["killed", "cut"])
async def test_a_deleted_group_is_cleaned_up_after_before_anything_else(
    it: Fleet, diary: Diary, fault: str
) -> None:
    """Killed: a new process pays. Cut off: what still runs is stopped at the first contact."""
    host = await it.host()
    group = await it.group(
        diary.task("long", wait=True),
        name="campaign",
        environment_setup_hook=diary.hook("setup"),
        environment_teardown_hook=diary.hook("teardown"),
        cancel_grace_seconds=0.2,
    )
    await it.until(lambda: diary.began("long"))
    if fault == "killed":
        await host.kill()
    else:
        host.wire.cut()
    await it.client.cancel(group)
    assert (await it.client.wait(group)).result is TaskGroupResult.CANCELLED
    await deleted(it, group)
    if fault == "killed":
        await host.start()
    else:
        host.wire.mend()
    await served(it, diary)
    lines = [*diary.lines()]
    assert lines.index("E teardown") < lines.index("S setup-next"), lines
    assert (diary.began("teardown"), diary.ended("long")) == (1, 0)
    await cleaned(it, host)


async def test_a_host_that_cannot_reach_temporal_keeps_no_group_unsettled(
    it: Fleet, diary: Diary
) -> None:
    """Its renewals end the lease and order the teardown (P8)."""
    async with deaf_host(it) as (host, wire):
        group = await it.group(
            diary.task("t", wait=True),
            environment_setup_hook=diary.hook("setup"),
            environment_teardown_hook=diary.hook("teardown"),
        )
        await it.until(lambda: diary.began("t"))
        wire.cut()
        diary.go("t")
        info = await it.settled(group)
        assert (info.result, info.tasks_succeeded) == (TaskGroupResult.SUCCESS, 1)
        assert (diary.began("setup"), diary.ended("teardown")) == (1, 1)
        await cleaned(it, host)


@pytest.mark.parametrize("hook", ["succeeds", "fails", "is cancelled"])
async def test_a_setup_during_which_temporal_goes_away_is_not_lost(
    it: Fleet, diary: Diary, hook: str
) -> None:
    """The agent learns by its renewals that it holds the lease, or that it ends (P6)."""
    async with deaf_host(it) as (host, wire):
        setup = diary.hook("setup", wait=True)
        if hook == "fails":
            script = setup.command[2] + "; exit 3"
            setup = setup.model_copy(update={"command": ("/bin/sh", "-c", script)})
        group = await it.group(
            diary.task("t"),
            environment_setup_hook=setup,
            environment_teardown_hook=diary.hook("teardown"),
        )
        await it.until(lambda: diary.began("setup"))
        wire.cut()
        if hook == "is cancelled":
            await it.client.cancel(group)
            info = await it.client.wait(group)
            assert (info.result, diary.ended("setup")) == (TaskGroupResult.CANCELLED, 0)
        else:
            diary.go("setup")
            if hook == "succeeds":
                assert (await it.settled(group)).tasks_succeeded == 1
            else:
                await it.client.cancel(group)
                await it.client.wait(group)
        await cleaned(it, host)
        assert diary.began("setup") == 1, "never a second time"
        assert diary.began("t") == (hook == "succeeds")
