"""Submitting: all or nothing, once per idempotency key, once per dedup key (protocol P11)."""

import asyncio
from dataclasses import asdict, replace

import msgspec
import pytest

from mitosis.contracts.errors import (
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    TaskGroupClosed,
    TooLarge,
)
from mitosis.contracts.task import RetryPolicy, SubmittedTask, TaskSubmission
from mitosis.store.groups.views import read_group
from mitosis.store.tasks.submit import ONE_STATEMENT
from tests.support.campaigns import held, spec_of, until_blocked, world

SIZES = pytest.mark.parametrize(
    "count", [3, ONE_STATEMENT + 1], ids=["one statement", "transaction"]
)


def command(**facts: object) -> TaskSubmission:
    return TaskSubmission(command=["true"], **facts)  # type: ignore[arg-type]


@SIZES
async def test_ids_come_in_the_order_of_the_tasks_and_specs_unchanged(
    database: str, count: int
) -> None:
    async with world(database) as w:
        group = await w.group()
        tasks = [
            SubmittedTask(handler="m:f", arguments={"n": i, "text": 'ä"\\\0\n'}, labels=["x"])
            for i in range(count)
        ]
        answer = await w.submit_tasks(group, tasks)
        assert answer.created == count
        host = await w.leased_host(group)
        claimed = (await host.claim(1000)).tasks
        assert [task.task_id for task in claimed] == answer.task_ids
        assert [spec_of(task) for task in claimed] == tasks
        await w.check()


@SIZES
async def test_a_repeated_idempotency_key_gives_the_first_answer_and_creates_nothing(
    database: str, count: int
) -> None:
    async with world(database) as w:
        group = await w.group()
        first = await w.submit(group, count, idempotency_key="k")
        again = await w.submit(group, count, idempotency_key="k")
        other = await w.submit(group, count, idempotency_key="k", part=1)
        assert (again.task_ids, again.created, again.replayed) == (first.task_ids, count, True)
        assert not other.replayed
        await w.close(group)
        assert (await w.submit(group, count, idempotency_key="k")).replayed, "also when closed"
        assert (await read_group(w.store, group)).tasks_total == 2 * count
        await w.check()


@SIZES
async def test_eight_racing_submits_with_one_key_create_once(database: str, count: int) -> None:
    async with world(database) as w:
        group = await w.group()
        answers = await asyncio.gather(
            *(w.submit(group, count, idempotency_key="k") for _ in range(8))
        )
        assert sorted(answer.replayed for answer in answers) == [False] + [True] * 7
        assert len({tuple(answer.task_ids) for answer in answers}) == 1
        assert (await read_group(w.store, group)).tasks_total == count
        await w.check()


@pytest.mark.spec("C-09", "S000-146")
@SIZES
async def test_a_closed_group_takes_nothing_and_keeps_nothing(database: str, count: int) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.close(group)
        with pytest.raises(TaskGroupClosed):
            await w.submit(group, count)
        with pytest.raises(TaskGroupClosed):
            await w.submit(group, count, idempotency_key="k")
        assert await w.value("SELECT count(*) FROM task") == 0
        assert await w.value("SELECT count(*) FROM submission") == 0


@pytest.mark.spec("C-09", "S000-146")
@SIZES
async def test_reopen_on_submit(database: str, count: int) -> None:
    async with world(database) as w:
        group = await w.group(reopen_on_submit=True)
        await w.close(group)
        await w.pokes()
        assert (await w.submit(group, count)).created == count
        view = await w.control.observe_task_group(group)
        assert (view.state, view.unfinished) == ("open", count)
        assert ("task_group", group) in await w.pokes()
        await w.cancel(group)
        with pytest.raises(TaskGroupClosed):
            await w.submit(group, count)


@pytest.mark.spec("C-09", "S000-146")
@SIZES
async def test_a_submit_that_waits_for_a_close_is_refused(database: str, count: int) -> None:
    async with world(database) as w, held(database) as closing:
        group = await w.group()
        await closing.held.execute("UPDATE group_live SET state = 'closed', closed_at = now()")
        submit = asyncio.create_task(w.submit(group, count))
        await until_blocked(w)
        await closing.commit()
        with pytest.raises(TaskGroupClosed):
            await submit
        assert await w.value("SELECT count(*) FROM task") == 0


async def test_a_large_submit_does_not_hold_up_reports_while_it_writes_its_payload(
    database: str,
) -> None:
    async with world(database) as w, held(database) as big:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        claimed = await host.claim()
        tasks = [command() for _ in range(ONE_STATEMENT + 1)]
        from mitosis.store.tasks import submit

        parameters = {"group": group, **asdict(submit._columns(tasks))}
        await big.held.execute(submit.SQL["submit_payload"], parameters)
        assert (await host.finish(claimed.tasks)).statuses == ["committed"] * 2


async def test_a_dedup_key_is_taken_while_a_task_has_it(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        first = await w.submit_tasks(group, [command(dedup_key="a"), command(dedup_key="b")])
        some = [command(dedup_key=key) for key in ("b", None, "c", "c")]
        again = await w.submit_tasks(group, some, idempotency_key="k")
        assert (first.created, again.created) == (2, 2)
        assert again.task_ids[0] == first.task_ids[1]
        assert again.task_ids[2] == again.task_ids[3]
        replayed = await w.submit_tasks(group, some, idempotency_key="k")
        assert (replayed.task_ids, replayed.created) == (again.task_ids, 2)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        later = await w.submit_tasks(group, [command(dedup_key="a")])
        assert later.created == 1
        assert later.task_ids != first.task_ids[:1]
        await w.check()


async def test_a_submit_with_a_dedup_key_against_the_report_of_its_holder(database: str) -> None:
    """Both want group_live and the row of the key: whoever is first, nobody deadlocks."""
    async with world(database) as w, held(database) as reporting:
        group = await w.group()
        await w.submit_tasks(group, [command(dedup_key="a")])
        host = await w.leased_host(group)
        claimed = await host.claim()
        await replace(host, world=w.on(reporting)).finish(claimed.tasks)
        submit = asyncio.create_task(w.submit_tasks(group, [command(dedup_key="a")]))
        await until_blocked(w)
        await reporting.commit()
        assert (await submit).created == 1
        await w.check()


async def test_what_is_not_valid_is_named_and_nothing_is_kept(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        nothing = msgspec.json.decode(b"{}", type=SubmittedTask)
        with pytest.raises(InvalidRequest) as error:
            await w.submit_tasks(group, [command(), nothing])
        assert error.value.facts["field"] == "tasks[1]"
        with pytest.raises(InvalidRequest):
            await w.submit_tasks(group, [command(dedup_key="a\0b")])
        with pytest.raises(InvalidRequest):
            await w.submit(group, 1, idempotency_key="a\0b")
        with pytest.raises(TooLarge):
            await w.submit(group, 10_001)
        with pytest.raises(TooLarge):
            await w.submit_tasks(group, [TaskSubmission(command=["x" * 1_000_001])])
        assert await w.value("SELECT count(*) FROM task") == 0


@SIZES
async def test_no_such_group(database: str, count: int) -> None:
    async with world(database) as w:
        with pytest.raises(NotFound):
            await w.submit(w.user_id, count)


async def test_a_first_task_kicks_the_scheduler_and_a_later_one_only_for_more_hosts(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.pokes()
        await w.submit(group, 1)
        assert await w.pokes() == {("scheduler", None)}
        host = await w.leased_host(group)
        await w.pokes()
        await w.submit(group, 1)
        assert await w.pokes() == set(), "one lease is enough for two tasks"
        await w.submit(group, 1)
        assert await w.pokes() == {("scheduler", None)}
        assert len((await host.claim()).tasks) == 3


async def test_the_retry_policy_travels_with_the_row(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        policy = RetryPolicy(max_attempts=4, exit_codes=(1, 2**40, -2), delay_seconds=1.5)
        await w.submit_tasks(group, [command(retry=policy), command(priority=-7)])
        rows = await w.rows("SELECT * FROM open_task ORDER BY id")
        assert (rows[0]["max_attempts"], rows[0]["retry_exit_codes"]) == (4, [1, -2])
        assert rows[0]["retry_delay_seconds"] == 1.5
        assert (rows[1]["max_attempts"], rows[1]["retry_exit_codes"]) == (1, None)
        assert rows[1]["priority"] == -7


@SIZES
async def test_a_key_does_not_come_with_other_tasks(database: str, count: int) -> None:
    async with world(database) as w:
        group = await w.group()
        first = await w.submit(group, count, idempotency_key="k")
        others = [command() for _ in range(count)]
        with pytest.raises(IdempotencyKeyReused) as error:
            await w.submit_tasks(group, others, idempotency_key="k")
        assert error.value.facts["field"] == "idempotency_key"
        assert await w.value("SELECT count(*) FROM task") == count
        assert (await w.submit(group, count, idempotency_key="k")).task_ids == first.task_ids
        await w.close(group)  # also when the group takes nothing any more
        with pytest.raises(IdempotencyKeyReused):
            await w.submit_tasks(group, others, idempotency_key="k")
