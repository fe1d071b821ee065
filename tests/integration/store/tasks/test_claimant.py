"""Nothing that a host says about a task counts unless that host claimed the attempt (P2)."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest
from msgspec.structs import replace
from psycopg.rows import DictRow

from mitosis.contracts.agent_http import AttemptList
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.task_cancel import CancelTasks
from mitosis.contracts.wire import (
    ClaimedTask,
    Held,
    Outcome,
    OutputChunk,
    Renewal,
    ReportStatus,
    TaskAttempt,
    TaskReport,
    WriteOutput,
)
from mitosis.store.managers.contact import renew
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.output.following import Interest, following
from mitosis.store.output.writing import write_output
from mitosis.store.tasks.cancel import cancel_tasks
from tests.support.campaigns import Host, World, failed, succeeded, world

WATCHED = (
    "SELECT * FROM open_task ORDER BY id",
    "SELECT * FROM task_result ORDER BY task_id",
    "SELECT * FROM task_failures ORDER BY id",
    "SELECT * FROM task_output ORDER BY id",
    "SELECT * FROM task_stops ORDER BY task_id",
    "SELECT * FROM group_live",
    "SELECT * FROM host_failures",
)
CLAIMED = ("unstarted", "running", "cancelled", "returned", "retried", "lost", "moved")
"""What has become of the first tasks of the group, in this order; the others were never claimed."""
STILL_OWN = ("unstarted", "running", "returned", "lost", "moved")
"""The attempts whose report by the host that claimed them counts."""


async def rows(w: World) -> dict[str, list[DictRow]]:
    return {statement: await w.rows(statement) for statement in WATCHED}


def of_attempt(task: ClaimedTask, outcome: Outcome) -> TaskReport:
    return TaskReport(task_id=task.task_id, attempt=task.attempt, outcome=outcome, started_at=1.0)


async def group_in_every_state(w: World) -> tuple[UUID, Host, list[ClaimedTask], list[ClaimedTask]]:
    """Return a group, the host that serves it, what it has claimed, and unclaimed tasks as attempt 0."""
    group = await w.group(max_managers=2)
    await w.submit_tasks(group, [a_task(), a_task(priority=-1)])
    host = await w.leased_host(group)
    moved, lost = (await host.claim()).tasks
    await host.hello(journal=AttemptList.of([AttemptKey(moved.task_id, moved.attempt)]))
    await w.submit_tasks(group, [a_task()] * 20)
    unstarted, running, cancelled, returned, retried = (await host.claim(5)).tasks
    await host.renew(started=[running, cancelled], returned=[returned])
    await host.report(failed(retried, exit_code=1))
    await cancel_tasks(w.store, group, CancelTasks(task_ids=(cancelled.task_id,)))
    never = await w.rows("SELECT id FROM open_task WHERE attempt = 0")
    tasks = [unstarted, running, cancelled, returned, retried, lost, moved]
    return group, host, tasks, [replace(moved, task_id=row["id"], attempt=0) for row in never]


def a_task(priority: int = 0) -> TaskSubmission:
    retry = RetryPolicy(max_attempts=9, delay_seconds=600)
    return TaskSubmission(command=["x"], retry=retry, priority=priority)


async def say_everything(
    forger: Host, tasks: Sequence[ClaimedTask], victim: Host
) -> set[ReportStatus]:
    """Say all that a host can say about tasks and their leases; return how its reports were answered."""
    store, statuses = forger.world.store, set()
    attempts = [TaskAttempt(task_id=task.task_id, attempt=task.attempt) for task in tasks]
    keys = AttemptList.of(AttemptKey(task.task_id, task.attempt) for task in tasks)
    own = forger.epoch
    for epoch in (own, victim.epoch):
        for outcome in Outcome:
            reports = [of_attempt(task, outcome) for task in tasks]
            statuses |= set((await forger.report(*reports, epoch=epoch)).statuses)
        renewal = Renewal(
            incarnation=forger.incarnation,
            epoch=epoch,
            started=attempts,
            returned=attempts,
            over=victim.epoch,
            announced=attempts,
            running=attempts,
            held=Held(acked_seq=2**62, task_ids=[]),
        )
        answer = await renew(store, forger.manager_id, renewal)
        assert answer.recorded == []
        assert len(answer.superseded) == len(attempts)
        refused = (
            replace(renewal, cannot_start="no room", over=None)
            if epoch == victim.epoch
            else renewal
        )
        await renew(store, forger.manager_id, refused)
        for whole in (False, True):
            chunks = [
                OutputChunk(
                    task_id=task.task_id,
                    attempt=task.attempt,
                    stream="stdout",
                    offset=0,
                    data=b"forged",
                )
                for task in tasks
            ]
            await write_output(
                store, forger.manager_id, WriteOutput(epoch=epoch, chunks=chunks, whole=whole)
            )
        await say_goodbye(store, forger.manager_id, victim.epoch)
    await forger.hello(journal=keys, begun=keys)
    return statuses


async def ended(w: World, group: UUID) -> Host:
    """A host whose lease has ended."""
    host = await w.leased_host(group)
    await say_goodbye(w.store, host.manager_id, host.epoch)
    await host.hello()
    return host


async def live(w: World, group: UUID) -> Host:
    return await w.leased_host(group)


async def without(w: World, group: UUID) -> Host:
    """A host that never had a lease, and names that of another."""
    return await w.host()


@pytest.mark.parametrize("forger", [ended, live, without])
async def test_nothing_counts_that_a_host_says_about_what_it_has_not_claimed(
    database: str, forger: Callable[[World, UUID], Awaitable[Host]]
) -> None:
    async with world(database) as w:
        group, host, claimed, never = await group_in_every_state(w)
        other = await forger(w, group)
        tasks = [*claimed, *never]
        number = await w.value("SELECT id FROM task_groups")
        async with following(w.store, Interest(number, None)):
            before = await rows(w)
            statuses = await say_everything(other, tasks, host)
            assert await rows(w) == before
        assert ReportStatus.COMMITTED not in statuses
        own = [task for name, task in zip(CLAIMED, claimed, strict=True) if name in STILL_OWN]
        first = await w.value("SELECT min(epoch) FROM leases")
        answer = await host.report(*map(succeeded, own), epoch=first)
        assert set(answer.statuses) == {ReportStatus.COMMITTED}
        none = [of_attempt(task, Outcome.SUCCEEDED) for task in never]
        assert set((await host.report(*none)).statuses) == {ReportStatus.SUPERSEDED}
        await w.check()
