"""Claims of worker services: what they get, in which order, and what a lost answer changes."""

import asyncio
import json

import pytest

from mitosis.contracts.errors import Superseded, WorkerNotRegistered
from mitosis.contracts.task import RetryPolicy
from mitosis.contracts.wire import Outcome
from mitosis.store.services.claim import PREFERENCE_SECONDS
from mitosis.store.services.contact import drain_worker
from tests.support.campaigns import World, world
from tests.support.waiting import wait_until_async
from tests.support.worker_services import healthy, service_group, submit_named, task


async def older(w: World, seconds: float = 60.0) -> None:
    """Move the submits of all tasks into the past."""
    await w.rows("UPDATE task SET created_at = created_at - make_interval(secs => %s)", seconds)


async def waits(w: World) -> int:
    return int(
        await w.value("SELECT count(*) FROM worker_registrations WHERE waiting_until > now()")
    )


@pytest.mark.spec("S004-36", "S004-57", "S004-60")
async def test_a_service_gets_what_it_supports_with_its_own_configuration(database: str) -> None:
    async with world(database) as w:
        large = task(configuration={"size": 9}, max_concurrent=None)
        one = await healthy(w, "one", large, slots=4)
        other = await healthy(w, "two", task("crop"), slots=4)
        group = await service_group(w, count=2)
        await submit_named(w, group, 1, "images/crop@1")
        mine, theirs = await one.claim(), await other.claim()
        assert [(t.namespace, t.name, t.version) for t in mine] == [("images", "resize", "1")] * 2
        assert [t.name for t in theirs] == ["crop"]
        assert [json.loads(bytes(t.configuration)) for t in mine] == [{"size": 9}] * 2
        assert [json.loads(bytes(t.spec))["arguments"] for t in mine] == [
            {"number": 0},
            {"number": 1},
        ]
        assert [t.configuration_version for t in mine] == [1, 1]
        assert {t.attempt for t in mine} == {1}
        assert await one.claim() == ()
        answer = await one.report(*mine)
        assert [status.value for status in answer.statuses] == ["committed"] * 2
        await w.check()


@pytest.mark.spec("S004-57")
async def test_a_changed_configuration_counts_from_the_next_claim_on(database: str) -> None:
    async with world(database) as w:
        service = await healthy(w, "one", task(configuration={"size": 1}), slots=4, incarnation=1)
        await service_group(w, count=2)
        (first,) = await service.claim(1)
        again = await healthy(w, "one", task(configuration={"size": 2}), slots=4, incarnation=1)
        again.held = service.held
        (second,) = await again.claim(1)
        sizes = [json.loads(bytes(one.configuration))["size"] for one in (first, second)]
        assert (sizes, first.configuration_version, second.configuration_version) == ([1, 2], 1, 2)
        await again.report(first, second)
        versions = await w.rows(
            "SELECT c.configuration_version FROM task_result AS r JOIN service_claims AS c"
            " ON c.task_id = r.task_id AND c.attempt = r.attempt ORDER BY r.task_id"
        )
        assert [row["configuration_version"] for row in versions] == [1, 2]


async def test_a_lost_answer_is_returned_by_the_next_claim(database: str) -> None:
    async with world(database) as w:
        service = await healthy(w, "one", slots=3)
        await service_group(w, count=5)
        lost = (await service.ask(2)).tasks
        assert len(lost) == 2
        late = (await service.ask(2)).tasks  # a copy that its sender has given up
        assert [one.task_id for one in late] == [one.task_id for one in lost]
        got = await service.claim(3)
        assert [one.task_id for one in got[:2]] == [one.task_id for one in lost]
        assert (len(got), {one.attempt for one in got}) == (3, {1})
        assert await service.claim(3) == ()
        await service.report(got[0], lose=True)
        assert await service.claim(3) == ()  # it holds it until its report is answered
        (status,) = (await service.report(got[0])).statuses
        assert status.value == "duplicate"
        assert len(await service.claim(3)) == 1


async def test_no_service_gets_more_than_its_slots_and_its_limit_for_a_task(database: str) -> None:
    async with world(database) as w:
        supported = (task(max_concurrent=2), task("crop"))
        service = await healthy(w, "one", *supported, slots=4)
        group = await service_group(w, count=5)
        await submit_named(w, group, 5, "images/crop@1")
        names = sorted(one.name for one in (*await service.claim(), *await service.claim()))
        assert names == ["crop", "crop", "resize", "resize"]
        assert await service.claim() == ()
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 1") == 4


async def test_groups_go_by_priority_and_tasks_by_priority_then_age(database: str) -> None:
    async with world(database) as w:
        service = await healthy(w, "one", task(), task("crop"), slots=10)
        await service_group(w, "low", count=1)
        high = await service_group(w, "high", priority=1)
        await submit_named(w, high, 1)
        await submit_named(w, high, 1, "images/crop@1", priority=5)
        await submit_named(w, high, 1)
        order = []
        for _ in range(4):
            (one,) = await service.claim(1)
            order.append(
                (one.task_group_name, one.name, json.loads(bytes(one.spec)).get("priority", 0))
            )
        assert order == [
            ("high", "crop", 5),
            ("high", "resize", 0),
            ("high", "resize", 0),
            ("low", "resize", 0),
        ]


async def test_only_the_registered_process_claims(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=3)
        old = await healthy(w, "one", incarnation=1)
        new = await healthy(w, "one", incarnation=2)
        with pytest.raises(Superseded):
            await old.claim()
        assert len(await new.claim()) == 1
        await new.ago(601)
        with pytest.raises(WorkerNotRegistered):
            await new.claim()


async def test_a_drained_service_gets_nothing_new(database: str) -> None:
    async with world(database) as w:
        service = await healthy(w, "one", slots=3)
        await service_group(w, count=3)
        lost = (await service.ask(1)).tasks
        await drain_worker(w.store, service.made.worker_uuid)
        answer = await service.ask(3, wait=5.0)
        assert answer.draining
        assert [one.task_id for one in answer.tasks] == [one.task_id for one in lost]


async def test_a_task_that_cost_two_processes_runs_alone(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=3)
        await w.rows(
            "UPDATE open_task SET lost_count = 2 WHERE id = (SELECT min(id) FROM open_task)"
        )
        service = await healthy(w, "one", slots=3)
        (alone,) = await service.claim()
        assert alone.alone
        assert await service.claim() == ()
        await service.report(alone)
        assert len(await service.claim()) == 2


async def test_nothing_overtakes_a_task_that_waits_to_run_alone(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=3)
        service = await healthy(w, "one", slots=3)
        (first,) = await service.claim(1)
        await w.rows(
            "UPDATE open_task SET lost_count = 2 WHERE id = (SELECT max(id) FROM open_task)"
        )
        await w.rows("UPDATE open_task SET priority = 1 WHERE lost_count = 2")
        assert await service.claim() == ()
        await service.report(first)
        (alone,) = await service.claim()
        assert alone.alone


async def test_a_better_service_that_waits_goes_first_for_a_time(database: str) -> None:
    """A lower one gets nothing while a healthy higher one waits, for preference_seconds at most."""
    async with world(database) as w:
        better = await healthy(w, "better", task(priority=200))
        low = await healthy(w, "low", task(priority=100), slots=9)
        group = await service_group(w, preference_seconds=30)
        waiting = asyncio.create_task(better.claim(1, wait=10))
        await wait_until_async(lambda: waits(w), on_timeout="the better service does not wait")
        await w.rows(
            "UPDATE worker_registrations SET waiting_until = now() + interval '1 hour'"
            " WHERE waiting_until IS NOT NULL"
        )
        await submit_named(w, group, 3)
        assert len(await waiting) == 1  # woken by the submit
        assert len(await low.claim()) == 2  # the better one is busy
        await submit_named(w, group, 2)
        await w.rows(
            "UPDATE worker_registrations SET waiting_until = now() + interval '1 hour'"
            " WHERE id = %s",
            better.made.registration_id,
        )
        assert await low.claim() == ()
        await older(w, 31)
        assert len(await low.claim()) == 2


async def test_what_was_kept_for_a_better_service_is_taken_without_a_wake_up(database: str) -> None:
    async with world(database) as w:
        better = await healthy(w, "better", task(priority=200))
        low = await healthy(w, "low", task(priority=100))
        await w.rows(
            "UPDATE worker_registrations SET waiting_until = now() + interval '1 hour'"
            " WHERE id = %s",
            better.made.registration_id,
        )
        await service_group(w, count=1, preference_seconds=0.3)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert len(await low.claim(wait=10)) == 1
        assert loop.time() - began < 5
        assert PREFERENCE_SECONDS == 1.0


@pytest.mark.parametrize("trouble", ["unhealthy", "drained", "over"])
async def test_only_a_usable_service_is_waited_for(database: str, trouble: str) -> None:
    async with world(database) as w:
        better = await healthy(w, "better", task(priority=200))
        low = await healthy(w, "low", task(priority=100))
        await service_group(w, count=1, preference_seconds=30)
        await w.rows(
            "UPDATE worker_registrations SET waiting_until = now() + interval '1 hour'"
            " WHERE id = %s",
            better.made.registration_id,
        )
        assert await low.claim() == ()
        if trouble == "unhealthy":
            await better.ago(121)
        elif trouble == "drained":
            await drain_worker(w.store, better.made.worker_uuid)
        else:
            await better.goodbye()
        assert len(await low.claim()) == 1


async def test_a_waiting_claim_is_woken_by_a_submit_a_retry_and_a_requeue(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        one, two = await healthy(w, "one"), await healthy(w, "two")
        waiting = asyncio.create_task(one.claim(wait=10))
        await wait_until_async(lambda: waits(w), on_timeout="nothing waits")
        await submit_named(w, group, 1, retry=RetryPolicy(max_attempts=2))
        (first,) = await waiting
        waiting = asyncio.create_task(two.claim(wait=10))
        await wait_until_async(lambda: waits(w), on_timeout="nothing waits")
        await one.report(first, outcome=Outcome.FAILED)
        (second,) = await waiting
        assert (second.task_id, second.attempt) == (first.task_id, 2)
        waiting = asyncio.create_task(one.claim(wait=10))
        await wait_until_async(lambda: waits(w), on_timeout="nothing waits")
        await two.goodbye()
        (third,) = await waiting
        assert (third.task_id, third.attempt) == (first.task_id, 3)


async def test_two_services_never_get_one_task(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=60)
        services = [await healthy(w, f"s{number}", slots=5) for number in range(10)]
        answers = await asyncio.gather(*(one.claim(5, wait=2) for one in services))
        got = [one.task_id for tasks in answers for one in tasks]
        assert len(got) == len(set(got)) == 50


async def test_no_host_is_offered_a_group_of_services(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=50)
        await w.host()
        answer = await w.control.assign_round()
        assert answer.offered == 0
        assert await w.control.look() == await w.control.look()
        assert (await w.control.look()).what == ()
