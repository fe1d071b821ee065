"""Cancelled futures cancel their tasks; an interrupted program does not cancel what it only waited for."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import pytest

from mitosis.client.creating import Planned
from mitosis.client.port import Group, GroupCalls
from mitosis.client.submitting import Part
from mitosis.client.task_future import TaskFuture
from mitosis.client.task_group import OnError, TaskGroup
from mitosis.client.withdrawal import WITHIN_SECONDS
from mitosis.contracts.errors import ApiUnavailable
from mitosis.contracts.http import ResultsPage, TaskGroupInfo
from mitosis.contracts.task_cancel import CancelledTasks
from mitosis.contracts.wire import SubmitAnswer
from tests.support.infos import group


class Calls:
    """An API with one group, whose tasks never end by themselves."""

    give_up_after = timedelta()

    def __init__(self) -> None:
        self.submitted = asyncio.Event()
        self.cancelled: list[int] = []
        self.away = False

    async def group(self, _: Group) -> TaskGroupInfo:
        return group(tasks_total=0, tasks_unfinished=0)

    async def submit_part(self, _: Group, part: Part) -> SubmitAnswer:
        self.submitted.set()
        return SubmitAnswer(task_ids=[*range(1, len(part.tasks) + 1)], created=len(part.tasks))

    async def close_group(self, _: Group, *, reason: str | None = None) -> TaskGroupInfo:
        await asyncio.sleep(2 * WITHIN_SECONDS)  # as over a slow network
        return group(state="closed", reason=reason)

    async def results_page(self, _: Group, **__: Any) -> ResultsPage:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def cancel_tasks(self, _: Group, tasks: Sequence[int]) -> CancelledTasks:
        if self.away:
            raise ApiUnavailable
        self.cancelled += tasks
        return CancelledTasks(cancelled=len(tasks), stopping=0)


def of(calls: Calls, on_error: OnError = "leave") -> TaskGroup:
    info = group()
    return TaskGroup(cast("GroupCalls", calls), Planned(info), on_exit="leave", on_error=on_error)


def started(it: TaskGroup) -> TaskFuture[Any]:
    return it.submit_task({"command": ["true"]})


async def test_a_cancelled_future_cancels_its_task_before_the_block_ends() -> None:
    calls = Calls()
    async with of(calls) as it:
        future = started(it)
        await calls.submitted.wait()
        await asyncio.sleep(0)
        assert future.cancel()
        assert not future.cancel(), "once"
    assert calls.cancelled == [1]


async def test_a_timeout_of_a_wait_cancels_the_task_and_a_shield_does_not() -> None:
    calls = Calls()
    async with of(calls) as it:
        first, second = started(it), started(it)
        await calls.submitted.wait()
        for waited in (first, asyncio.shield(second)):
            with suppress(TimeoutError):
                await asyncio.wait_for(waited, 0.01)
        assert first.cancelled()
        assert not second.done()
    assert calls.cancelled == [1]


@pytest.mark.parametrize("on_error", ["leave", "close"])
async def test_an_interrupted_program_leaves_what_it_waited_for(on_error: OnError) -> None:
    calls = Calls()

    async def program() -> None:
        async with of(calls, on_error) as it:
            await started(it)

    running = asyncio.create_task(program())
    await calls.submitted.wait()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert calls.cancelled == []


async def test_a_cancel_that_does_not_arrive_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls()
    async with of(calls) as it:
        future = started(it)
        await calls.submitted.wait()
        await asyncio.sleep(0)
        calls.away = True
        future.cancel()
    assert [record.message for record in caplog.records] == ["tasks.not_cancelled"]
