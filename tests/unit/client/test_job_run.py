"""A run in a program: waits, changes and results, over answers that a test writes."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from mitosis.client.client import Client
from mitosis.client.job_run import JobRun
from mitosis.contracts.errors import Conflict, InvalidRequest
from mitosis.contracts.lifecycle import RunState
from mitosis.contracts.runs import RunView, StepTask
from mitosis.jobs.building import step as job_step
from tests.support.run_views import run_view, step

NO_PAUSE = timedelta()


@job_step
def merge() -> int:
    return 1


def client_of(*answers: Any) -> tuple[Client, list[httpx2.Request]]:
    """A client whose n-th request gets the n-th answer, and the requests that it has made."""
    made: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        made.append(request)
        body = answers[len(made) - 1]
        text = body.model_dump_json() if isinstance(body, RunView) else json.dumps(body)
        return httpx2.Response(200, text=text, headers={"Content-Type": "application/json"})

    return Client("http://127.0.0.1:9", transport=httpx2.MockTransport(answer)), made


def tasks(*results: Any) -> dict[str, Any]:
    known = {"task_group_id": UUID(int=3), "state": "succeeded", "attempt": 1}
    listed = [
        StepTask.model_validate({"index": at, "task_id": at, "result": one, **known})
        for at, one in enumerate(results)
    ]
    return {"items": [one.model_dump(mode="json") for one in listed], "next": None}


def running(revision: int, **facts: Any) -> RunView:
    return run_view(step("merge", "running"), revision=revision, **facts)


ENDED = run_view(
    step("merge", "succeeded", ended_at="2026-11-28T12:00:09Z"), revision=9, state="success"
)


async def test_a_wait_asks_again_until_the_run_has_ended() -> None:
    client, made = client_of(running(2), running(3), ENDED)
    async with client:
        run = JobRun(client, running(1))
        assert (await run.wait()).state == "success"
        assert (await run.wait()).state == "success"
    assert [one.url.params["until"] for one in made] == ["ended"] * 3
    assert run.info.revision == 9


async def test_a_wait_ends_after_its_time_with_the_run_as_it_is() -> None:
    client, made = client_of(running(2))
    async with client:
        assert (await JobRun(client, running(1)).wait(NO_PAUSE)).revision == 2
    assert made[0].url.params["wait_seconds"] == "0.0"


async def test_changes_ask_for_what_is_newer_than_the_last_view_and_end_with_the_run() -> None:
    """An answer without a change, after the time of a long poll, is no change."""
    client, made = client_of(running(2), running(2), running(5), ENDED)
    async with client:
        run = JobRun(client, running(1))
        seen = [view.revision async for view in run.changes(NO_PAUSE)]
    assert seen == [2, 5, 9]
    asked = [one.url.params.get("after_revision") for one in made]
    assert asked == [None, "2", "2", "5"]


async def test_a_run_that_has_ended_is_its_only_change() -> None:
    client, _ = client_of(ENDED)
    async with client:
        assert [view.revision async for view in JobRun(client, ENDED).changes(NO_PAUSE)] == [9]


async def test_the_result_of_a_step_is_what_a_definition_means_by_it() -> None:
    array = run_view(
        step("merge", "failed", is_array=True, ended_at="2026-11-28T12:00:09Z"), state="failed"
    )
    client, made = client_of(tasks({"rows": 3}), tasks(1, None, 3))
    async with client:
        assert await JobRun(client, ENDED).result(merge) == {"rows": 3}
        assert await JobRun(client, array).result("merge") == [1, None, 3]
    assert made[0].url.path.endswith(f"/runs/{UUID(int=7)}/steps/merge/tasks")


async def test_a_step_without_a_result_says_why() -> None:
    failed = run_view(
        step("merge", "failed", ended_at="2026-11-28T12:00:09Z", reason="exit status 3"),
        state="failed",
    )
    client, _ = client_of(running(2), tasks(None))
    async with client:
        with pytest.raises(Conflict, match="merge has not ended: it is running"):
            await JobRun(client, running(1)).result("merge")
        with pytest.raises(Conflict, match="merge has no result: it is failed: exit status 3"):
            await JobRun(client, failed).result("merge")
        with pytest.raises(InvalidRequest, match="no step marge; it has merge"):
            await JobRun(client, failed).result("marge")
        with pytest.raises(InvalidRequest, match="a function with @step"):
            await JobRun(client, failed).result(3)  # type: ignore[arg-type]


async def test_a_run_is_started_under_a_key_of_its_own() -> None:
    """So a call whose answer was lost can be repeated."""
    client, made = client_of(*[running(1)] * 4)
    async with client:
        await client.start_job("etl", {"date": "x"}, version=2, labels=["night"])
        await client.start_job({"name": "etl", "steps": {}}, idempotency_key="mine")
        await client.start_job("etl", idempotency_key=None)
        await client.rerun(UUID(int=7))
        with pytest.raises(InvalidRequest, match="job"):
            await client.start_job("a/b/c")
        with pytest.raises(InvalidRequest, match="labels"):
            await client.start_job("etl", labels="night")
    first, second, none, third = (json.loads(one.content) for one in made)
    key = first.pop("idempotency_key")
    assert first == {"job": "etl", "version": 2, "parameters": {"date": "x"}, "labels": ["night"]}
    keys = {key, *(one["idempotency_key"] for one in (second, none, third))}
    assert len(keys) == 4
    assert second == {"definition": {"name": "etl", "steps": {}}, "idempotency_key": "mine"}


async def test_a_list_of_runs_takes_one_or_several_conditions() -> None:
    client, made = client_of({"items": [], "next": None}, {"items": [], "next": None})
    async with client:
        ended = [RunState.FAILED, RunState.CANCELLED]
        assert [one async for one in client.runs(state=ended, label="night")] == []
        assert [one async for one in client.runs(job="etl")] == []
        with pytest.raises(InvalidRequest, match="state"):
            client.runs(state="broken")  # type: ignore[arg-type]
    assert made[0].url.params.get_list("state") == ["failed", "cancelled"]
    assert made[0].url.params.get_list("label") == ["night"]
    assert dict(made[1].url.params) == {"job": "etl", "limit": "500"}
