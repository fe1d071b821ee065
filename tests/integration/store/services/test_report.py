"""Reports of worker services: retries, crashes, and groups beside each other."""

import json
from typing import Any

import pytest
from msgspec import Raw

from mitosis.contracts.task import RetryPolicy
from mitosis.contracts.wire import Outcome
from tests.support.campaigns import World, world
from tests.support.worker_services import healthy, service_group, submit_named


async def result(w: World) -> tuple[str, str | None, int]:
    (row,) = await w.rows("SELECT state, kind, attempt FROM task_result")
    return row["state"], row["kind"], row["attempt"]


async def test_one_call_reports_tasks_of_several_groups(database: str) -> None:
    async with world(database) as w:
        await service_group(w, "a", count=2)
        await service_group(w, "b", count=1)
        service = await healthy(w, "one", slots=3)
        tasks = await service.claim()
        answer = await service.report(*reversed(tasks))
        assert [status.value for status in answer.statuses] == ["committed"] * 3
        ended = await w.rows("SELECT succeeded FROM group_live ORDER BY group_id")
        assert [row["succeeded"] for row in ended] == [2, 1]
        await w.check()


@pytest.mark.parametrize(
    ("facts", "kind"),
    [({}, "handler_error"), ({"exit_code": 3}, "exit_code"), ({"kind": "timeout"}, "timeout")],
)
async def test_a_failure_follows_the_policy_of_its_task(
    database: str, facts: dict[str, Any], kind: str
) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await submit_named(w, group, 1, retry=RetryPolicy(max_attempts=2))
        service = await healthy(w, "one")
        for attempt in (1, 2):
            (one,) = await service.claim()
            assert one.attempt == attempt
            await service.report(one, outcome=Outcome.FAILED, **facts)
        assert await result(w) == ("failed", kind, 2)
        assert await service.claim() == ()
        await w.check()


async def test_a_pause_before_a_retry_is_kept(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        retry = RetryPolicy(max_attempts=3, delay_seconds=0.5)
        await submit_named(w, group, 1, retry=retry)
        service = await healthy(w, "one")
        (one,) = await service.claim()
        await service.report(one, outcome=Outcome.FAILED)
        assert await service.claim() == ()
        (again,) = await service.claim(wait=10)
        assert again.attempt == 2


async def test_a_second_copy_of_a_failure_charges_nothing(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await submit_named(w, group, 1, retry=RetryPolicy(max_attempts=3))
        service = await healthy(w, "one")
        (one,) = await service.claim()
        await service.report(one, outcome=Outcome.FAILED, lose=True)
        (status,) = (await service.report(one, outcome=Outcome.FAILED)).statuses
        assert status.value == "duplicate"
        assert await w.value("SELECT exit_failures FROM open_task") == 1


async def test_the_result_is_stored_as_it_was_reported(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=1)
        service = await healthy(w, "one")
        (one,) = await service.claim()
        detail = Raw(b'{"result": {"width": 3}}')
        await service.report(one, detail=detail, started_at=5.0, finished_at=9.0)
        (row,) = await w.rows(
            "SELECT detail::text AS detail, finished_at - started_at AS took FROM task_result"
        )
        assert json.loads(row["detail"]) == {"result": {"width": 3}}
        assert row["took"].total_seconds() == 4
