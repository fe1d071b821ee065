"""Claimable work beside a free host begins soon, whatever was lost on the way (protocol P7).

Real API, PostgreSQL, Temporal and agents.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mitosis.contracts.lifecycle import TaskGroupResult
from mitosis.contracts.task import TaskSubmission
from tests.support.fleet import Diary, Fleet, diary, it, shared_fleet

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT = TaskSubmission(handler="time:sleep", arguments=[0.001])


@pytest.mark.spec("S000-33")
async def test_short_tasks_do_not_wait_behind_a_long_one_while_another_host_is_idle(
    it: Fleet, diary: Diary
) -> None:
    """The long one does not end before they have; each runs once."""
    await it.host()
    await it.host()
    tasks = [SHORT] * 150 + [diary.task("long", wait=True)] + [SHORT] * 150
    group = await it.group(*tasks, workers=1, worker_allocation_plan={"worker_count": 1})

    async def all_but_one() -> bool:
        return (await it.client.group(group)).tasks_succeeded == 300

    await it.until(all_but_one)
    assert diary.began("long") == 1
    diary.go("long")
    info = await it.settled(group)
    assert (info.result, info.tasks_succeeded) == (TaskGroupResult.SUCCESS, 301)


@asynccontextmanager
async def without_wakeups(it: Fleet) -> AsyncIterator[None]:
    """Lose every row of the outbox, and with it each poke; the API process wakes no waiting claim."""
    wake = it.api.app_state.store.wake
    assert wake is not None
    await it.rows(
        "CREATE OR REPLACE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    await it.rows(
        "CREATE TRIGGER lose BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION lose()"
    )
    woken, wake.wake = wake.wake, lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        wake.wake = woken  # type: ignore[method-assign]
        await it.rows("DROP TRIGGER lose ON outbox")


async def test_work_begins_although_every_poke_and_notification_is_lost(
    it: Fleet, diary: Diary
) -> None:
    """A submit, one to a lease that waits, a host that was cut off around a submit: each within 10 s."""
    host = await it.host()
    async with without_wakeups(it):
        group = await it.group(diary.task("first"), workers=1)
        await begins_soon(it, diary, "first")
        await it.until(lambda: diary.ended("first"))
        await it.client.submit(group, [diary.task("second")])
        await begins_soon(it, diary, "second")
        await it.until(lambda: diary.ended("second"))
        host.wire.cut()
        await it.rows("UPDATE manager_live SET last_contact_at = now() - interval '15 s'")
        await it.client.submit(group, [diary.task("third")])
        host.wire.mend()
        await begins_soon(it, diary, "third")
    assert (await it.settled(group)).tasks_succeeded == 3


async def begins_soon(it: Fleet, diary: Diary, name: str) -> None:
    """Wait for the start of a task; the bound of 10 s has room for a busy machine."""
    began = time.monotonic()
    await it.until(lambda: diary.began(name))
    assert time.monotonic() - began < 15
