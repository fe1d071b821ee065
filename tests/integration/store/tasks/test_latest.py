"""Submitting named tasks with the version `latest`, and only if a worker service is there."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from mitosis.contracts.errors import (
    IdempotencyKeyReused,
    InvalidRequest,
    MitosisError,
    NotFound,
    NoWorkersAvailable,
    TaskGroupClosed,
)
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import SubmitAnswer
from mitosis.contracts.worker_services import RegisterWorker
from mitosis.store.dependencies.edges import resolve_earlier
from mitosis.store.services.contact import drain_worker
from mitosis.store.services.registration import register_worker
from mitosis.store.tasks.submit import ONE_STATEMENT
from mitosis.store.users.accounts import create_user
from tests.support.campaigns import World, held, until_blocked, world
from tests.support.worker_services import healthy, registered, service_group, task

LATEST = "images/resize@latest"
MANY = ONE_STATEMENT + 1


async def submit(
    w: World, group: UUID, *names: str, fields: dict[str, Any] | None = None, **request: Any
) -> SubmitAnswer:
    tasks = [TaskSubmission(named_task=name, **(fields or {})) for name in names or (LATEST,)]
    return await w.submit_tasks(group, tasks, **request)


def versions(*versions: str) -> Sequence[dict[str, Any]]:
    return [task(version=one) for one in versions]


@pytest.mark.spec("S004-31")
@pytest.mark.parametrize("count", [3, MANY], ids=["one statement", "transaction"])
async def test_latest_is_the_highest_version_of_the_moment_and_stays_it(
    database: str, count: int
) -> None:
    async with world(database) as w:
        group = await service_group(w)
        one = await healthy(w, "one", *versions("1.9.0", "1.10.0", "2.0.0-rc.1"), slots=100)
        answer = await submit(w, group, *[LATEST] * (count - 1), "images/resize@1.9.0")
        expected = ["images/resize@1.10.0"] * (count - 1) + ["images/resize@1.9.0"]
        assert answer.named_tasks == expected
        await healthy(w, "two", *versions("3"))
        assert (await submit(w, group)).named_tasks == ["images/resize@3"]
        claimed = await one.claim()
        assert {given.version for given in claimed} <= {"1.10.0", "1.9.0"}
        assert claimed[0].version == "1.10.0", "what was submitted before keeps its version"
        await w.check()


async def test_a_pre_release_is_latest_only_without_a_release(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await healthy(w, "one", *versions("1.0.0-rc.9", "1.0.0-rc.10"))
        assert (await submit(w, group)).named_tasks == ["images/resize@1.0.0-rc.10"]
        await healthy(w, "two", *versions("0.1"))
        assert (await submit(w, group)).named_tasks == ["images/resize@0.1"]


async def test_a_version_that_no_service_supports_is_never_latest(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await healthy(w, "one", *versions("1", "2"))
        await submit(w, group, "images/resize@99")
        bob = await create_user(w.store, "bob")
        theirs = RegisterWorker.model_validate(
            {"worker_id": "theirs", "supported_tasks": versions("50")}
        )
        await register_worker(w.store, theirs, bob.user_id)
        assert (await submit(w, group)).named_tasks == ["images/resize@2"]
        await healthy(w, "one", *versions("1"))
        assert (await submit(w, group)).named_tasks == ["images/resize@1"]


@pytest.mark.spec("S004-35", "S004-58")
async def test_latest_of_what_nobody_supports_is_refused_with_the_nearest(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await healthy(w, "one", *versions("4"))
        with pytest.raises(NoWorkersAvailable, match=r"nearest registered: images/resize@4$") as no:
            await submit(w, group, "images/resise@latest")
        facts = no.value.facts
        assert (facts["namespace"], facts["name"], facts["version"]) == (
            "images",
            "resise",
            "latest",
        )
        await submit(w, group, "images/resise@1")  # waits; only makes a gap
        with pytest.raises(NoWorkersAvailable):
            await submit(w, group, "images/resise@latest")


@pytest.mark.spec("S004-35")
async def test_a_required_worker_must_be_there_now(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        one = await registered(w, "one")

        async def refusal(name: str = "images/resize@1") -> NoWorkersAvailable:
            before = await w.value("SELECT count(*) FROM named_tasks")
            with pytest.raises(NoWorkersAvailable) as refused:
                await submit(w, group, name, require_worker=True)
            assert await w.value("SELECT count(*) FROM task") == 0
            assert await w.value("SELECT count(*) FROM named_tasks") == before
            return refused.value

        assert "one is registered" in (await refusal()).message
        await one.heartbeat()
        near = (await refusal("images/resize@2")).facts
        assert (near["namespace"], near["name"], near["version"]) == ("images", "resize", "2")
        assert near["nearest"] == ["images/resize@1"]
        await one.ago(120)
        assert "one is unhealthy" in (await refusal()).message
        assert "one is unhealthy" in (await refusal(LATEST)).message
        await one.heartbeat()
        await drain_worker(w.store, one.made.worker_uuid)
        assert "one is drained" in (await refusal()).message
        await one.goodbye()
        await refusal()
        two = await healthy(w, "two")
        (done,) = (await submit(w, group, "images/resize@1", require_worker=True)).task_ids
        assert len(await two.claim()) == 1
        assert done


async def test_one_task_without_a_worker_refuses_the_whole_submission(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await healthy(w)
        with pytest.raises(NoWorkersAvailable) as refused:
            await submit(w, group, "images/resize@1", "images/crop@1", require_worker=True)
        assert refused.value.facts["name"] == "crop"
        assert await w.value("SELECT count(*) FROM task") == 0


@pytest.mark.parametrize("count", [1, MANY], ids=["one statement", "transaction"])
async def test_a_repeated_submission_keeps_its_versions_whatever_came_or_went(
    database: str, count: int
) -> None:
    async with world(database) as w:
        group = await service_group(w)
        one = await healthy(w)
        how: dict[str, Any] = {"require_worker": True, "idempotency_key": "k"}
        first = await submit(w, group, *[LATEST] * count, **how)
        await healthy(w, "two", *versions("2"))
        again = await submit(w, group, *[LATEST] * count, **how)
        assert again.replayed
        assert (again.task_ids, again.named_tasks) == (first.task_ids, first.named_tasks)
        assert set(first.named_tasks) == {"images/resize@1"}
        await healthy(w, "two", task("crop"))
        await one.goodbye()
        await healthy(w, "one", task("crop"))
        gone = await submit(w, group, *[LATEST] * count, **how)
        assert (gone.replayed, gone.named_tasks) == (True, first.named_tasks)
        with pytest.raises(IdempotencyKeyReused):
            await submit(w, group, *["images/resize@1"] * count, idempotency_key="k")
        with pytest.raises(NoWorkersAvailable):
            await submit(w, group, *[LATEST] * count, idempotency_key="other")
        assert await w.value("SELECT count(*) FROM task") == count


async def test_a_duplicate_is_shown_with_the_version_that_it_has(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await healthy(w)
        first = await submit(w, group, fields={"dedup_key": "d"})
        await healthy(w, "two", *versions("2"))
        again = await submit(w, group, fields={"dedup_key": "d"})
        assert (again.task_ids, again.created) == (first.task_ids, 0)
        assert again.named_tasks == ["images/resize@1"]


async def test_two_submits_of_one_key_with_a_version_between_give_one_answer(database: str) -> None:
    """Both have chosen their version when the first one inserts: the second one takes its answer."""
    async with world(database) as w, held(database) as other:
        group = await service_group(w)
        await healthy(w)
        await other.held.execute("SELECT FROM group_live FOR UPDATE")
        first = asyncio.create_task(submit(w, group, idempotency_key="k"))
        await until_blocked(w)
        await healthy(w, "two", *versions("2"))
        second = asyncio.create_task(submit(w, group, idempotency_key="k"))
        await until_blocked(w, 2)
        await other.commit()
        answers = [await first, await second]
        assert sorted(one.replayed for one in answers) == [False, True]
        assert answers[0].named_tasks == answers[1].named_tasks
        assert await w.value("SELECT count(*) FROM task") == 1


async def test_a_service_that_ends_before_the_insert_leaves_a_task_that_waits(
    database: str,
) -> None:
    async with world(database) as w, held(database) as other:
        group = await service_group(w)
        one = await healthy(w)
        await other.held.execute("SELECT FROM group_live FOR UPDATE")
        submitting = asyncio.create_task(submit(w, group, require_worker=True))
        await until_blocked(w)
        await one.goodbye()
        await healthy(w, "one", task("crop"))
        await other.commit()
        assert (await submitting).named_tasks == ["images/resize@1"]
        back = await healthy(w, "two")
        assert [given.version for given in await back.claim()] == ["1"]


@pytest.mark.parametrize("state", ["closed", "cancelled"])
async def test_a_group_that_ends_before_the_insert_takes_nothing(database: str, state: str) -> None:
    async with world(database) as w, held(database) as other:
        group = await service_group(w)
        await healthy(w)
        await other.held.execute(
            "UPDATE group_live SET state = %s, closed_at = now(),"
            " terminal_at = CASE WHEN %s <> 'closed' THEN now() END",
            [state, state],
        )
        submitting = asyncio.create_task(submit(w, group, require_worker=True, idempotency_key="k"))
        await until_blocked(w)
        await other.commit()
        with pytest.raises(TaskGroupClosed):
            await submitting
        assert await w.value("SELECT count(*) FROM task") == 0


@pytest.mark.parametrize(
    ("kind", "tasks", "error", "field"),
    [
        ("managed", [TaskSubmission(named_task=LATEST)], InvalidRequest, "tasks[0].named_task"),
        ("managed", [TaskSubmission(command=["true"])], InvalidRequest, "require_worker"),
        ("service", [TaskSubmission(command=["true"])], InvalidRequest, "require_worker"),
        (None, [TaskSubmission(named_task=LATEST)], NotFound, None),
    ],
)
async def test_what_has_no_worker_services_is_refused(
    database: str,
    kind: str | None,
    tasks: list[TaskSubmission],
    error: type[MitosisError],
    field: str | None,
) -> None:
    async with world(database) as w:
        group = await w.group(kind=kind) if kind else uuid4()
        with pytest.raises(error) as refused:
            await w.submit_tasks(group, tasks, require_worker=True)
        assert refused.value.facts.get("field") == field


async def test_a_task_depends_on_others_with_its_exact_version(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        one = await healthy(w, "one", *versions("1", "2"))
        tasks = [
            TaskSubmission(named_task=LATEST),
            TaskSubmission(named_task=LATEST, depends_on=[[0, 0]]),
        ]
        answer = await w.submit_tasks(group, tasks, idempotency_key="k")
        assert answer.named_tasks == ["images/resize@2"] * 2
        again = await w.submit_tasks(group, tasks, idempotency_key="k")
        assert (again.task_ids, again.replayed) == (answer.task_ids, True)
        (first,) = await one.claim()
        await one.report(first)
        await resolve_earlier(w.store, group)
        assert [given.version for given in await one.claim()] == ["2"]
