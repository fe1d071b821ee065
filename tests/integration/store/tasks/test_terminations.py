"""Own deaths by SIGTERM or SIGINT (C-29), and the pauses before other attempts."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mitosis.contracts.http import TaskInfo
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.outcome import LONGEST_PAUSE_SECONDS
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask
from mitosis.store.tasks.views import read_task
from tests.support.campaigns import Host, World, failed, world
from tests.support.databases import DatabasePool
from tests.support.examples import examples


async def one_task(w: World, **retry: Any) -> tuple[Host, ClaimedTask]:
    group: UUID = await w.group()
    task = TaskSubmission(command=["true"], retry=RetryPolicy(**retry))
    await w.submit_tasks(group, [task])
    host = await w.leased_host(group)
    (claimed,) = (await host.claim()).tasks
    return host, claimed


async def shown(w: World, task: ClaimedTask) -> TaskInfo:
    number = await w.value("SELECT group_id FROM task WHERE id = %s", task.task_id)
    return await read_task(w.store, task_uuid(number, task.task_id))


async def pause_of(w: World) -> float:
    """The seconds from the last failure to the next attempt; both are times of one transaction."""
    seconds = await w.value(
        "SELECT extract(epoch FROM o.not_before - (SELECT max(failed_at) FROM task_failures))"
        " FROM open_task AS o"
    )
    return 0.0 if seconds is None else float(seconds)


async def next_attempt(w: World, host: Host) -> ClaimedTask:
    """Claim the task again, as if its pause had passed."""
    await w.rows("UPDATE open_task SET not_before = now() WHERE state = 4")
    (task,) = (await host.claim()).tasks
    return task


@pytest.mark.spec("C-29", "S000-63")
async def test_deaths_by_sigterm_and_sigint_pause_longer_and_end_after_twenty(
    database: str,
) -> None:
    """Command or worker; nothing is charged, one failure row stands for all, the user sees the rest."""
    async with world(database) as w:
        host, task = await one_task(w, max_attempts=1)
        for number in range(1, 20):
            kind, signal = ("signal", 15) if number % 3 else ("worker_lost", 2)
            await host.report(failed(task, kind, signal=signal))
            wanted = min(2.0 ** (number - 1), 300.0)
            assert await pause_of(w) == pytest.approx(wanted)
            if number == 4:
                info = await shown(w, task)
                assert (info.state, len(info.failures)) == ("delayed", 1)
                assert "SIGTERM or SIGINT 4 times in a row" in (info.repetition or "")
                assert info.next_attempt_at is not None
                assert info.next_attempt_at > datetime.now(UTC)
            task = await next_attempt(w, host)
        first = failed(task, "signal", signal=15)
        row = "SELECT exit_failures, crash_failures, lost_count FROM open_task"
        assert await w.rows(row) == [{"exit_failures": 0, "crash_failures": 0, "lost_count": 0}]
        await host.report(first)
        info = await shown(w, task)
        assert (info.state, info.kind, info.signal) == ("failed", "terminated", 15)
        assert "20 times" in str((info.detail or {})["message"])
        (failure,) = info.failures
        assert (failure.first_attempt, failure.attempt, failure.failure_count) == (1, 20, 20)
        second = await host.report(failed(task, "signal", signal=15), first)
        assert second.statuses == ["duplicate"] * 2
        await w.check()


@pytest.mark.spec("C-29")
async def test_a_task_may_have_its_own_number_and_others_in_between_start_the_row_again(
    database: str,
) -> None:
    async with world(database) as w:
        host, task = await one_task(w, max_terminations=2, max_attempts=3)
        await host.report(failed(task, "signal", signal=15))
        task = await next_attempt(w, host)
        await host.report(failed(task, exit_code=1))
        task = await next_attempt(w, host)
        await host.report(failed(task, "signal", signal=2))
        task = await next_attempt(w, host)
        await host.report(failed(task, "signal", signal=2))
        info = await shown(w, task)
        assert (info.state, info.kind) == ("failed", "terminated")
        assert [(one.kind, one.failure_count) for one in info.failures] == [
            ("terminated", 1),
            ("exit_code", 1),
            ("terminated", 2),
        ]


ENDS = {"exit": ("exit_code", None), "crash": ("signal", 9), "terminated": ("signal", 15)}


@settings(max_examples=examples(3), phases=[Phase.generate])
@given(st.lists(st.sampled_from(sorted(ENDS)), min_size=12, max_size=12))
def test_every_repetition_has_a_bound_and_a_pause_that_grows(
    databases: DatabasePool, chosen: list[str]
) -> None:
    """Whatever the ends and their order: equal ends wait longer each time, and no task goes on for ever."""
    with databases.database() as url:
        asyncio.run(_ends(url, chosen))


async def _ends(url: str, chosen: list[str]) -> None:
    async with world(url) as w:
        host, task = await one_task(w, max_attempts=5, max_terminations=4)
        pauses: dict[str, list[float]] = {name: [] for name in ENDS}
        row = 0
        for name in chosen * 3:
            kind, signal = ENDS[name]
            await host.report(failed(task, kind, signal=signal, exit_code=None if signal else 3))
            row = row + 1 if name == "terminated" else 0
            if not await w.value("SELECT count(*) FROM open_task"):
                break
            if row == 1:
                pauses["terminated"].clear()
            pauses[name].append(await pause_of(w))
            for before, after in pairwise(pauses[name]):
                assert before < after <= LONGEST_PAUSE_SECONDS
            task = await next_attempt(w, host)
        else:
            pytest.fail("the task goes on for ever")
        rows = await w.value("SELECT count(*) FROM task_failures")
        assert rows <= 5 + 3 + 7
        await w.check()
