"""Runs over HTTP: started by name, version or definition; who sees what; waiting for a change."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from api.auth import Subject
from mitosis.store.users.accounts import add_member, create_user
from tests.support.http_api import Api, in_process_api


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


def definition(word: str = "a") -> dict[str, Any]:
    step = {"command": ["echo", word, "{{ params.p }}"], "environment": {"SECRET": "s3"}}
    return {"name": "etl", "parameters": {"p": {"default": "x"}}, "steps": {"one": step}}


async def call(api: Api, method: str, path: str, token: str = "", **given: Any) -> Any:
    answer = await api.call(method, path, token=token, **given)
    return answer.json() if answer.content else answer.status_code


@pytest.mark.spec("S001-07")
async def test_a_stored_job_runs_in_the_version_that_was_asked_for(api: Api) -> None:
    async with api.client() as client:
        await client.define_job(definition("first"))
        await client.define_job(definition("second"))
    last = await call(api, "POST", "/runs", json={"job": "etl", "parameters": {"p": "y"}})
    assert (last["state"], last["version"], last["job_name"]) == ("running", 2, "etl")
    assert (last["parameters"], last["created_by"], last["replayed"]) == (
        {"p": "y"},
        "admin",
        False,
    )
    (step,) = last["steps"]
    assert (step["name"], step["state"], step["total"], step["open"]) == ("one", "running", 1, 1)
    first = await call(api, "POST", "/runs", json={"job": "admin/etl", "version": 1})
    (task,) = (await call(api, "GET", f"/runs/{first['run_id']}/steps/one/tasks"))["items"]
    assert (task["index"], task["state"]) == (0, "ready")
    group = task["task_group_id"]
    (listed,) = (await call(api, "GET", f"/task-groups/{group}/tasks"))["items"]
    assert listed["spec"]["command"] == ["echo", "first", "x"]
    shown = await call(api, "GET", f"/runs/{first['run_id']}/definition")
    assert shown["definition"] == definition("first")
    listed = await call(api, "GET", "/runs", params={"job": "etl", "limit": 1})
    assert [one["run_id"] for one in listed["items"]] == [first["run_id"]]
    following = await call(api, "GET", "/runs", params={"after": listed["next"]})
    assert [one["run_id"] for one in following["items"]] == [last["run_id"]]
    keyed = {"job": "etl", "idempotency_key": "k"}
    third = await call(api, "POST", "/runs", json=keyed)
    async with api.client() as client:
        await client.delete_job("etl")
    again = await call(api, "POST", "/runs", json=keyed)
    assert (again["run_id"], again["replayed"]) == (third["run_id"], True)
    for other in ({**keyed, "name": "other"}, {"job": "etl"}):
        assert (await api.call("POST", "/runs", json=other)).status_code == 404
    assert (await call(api, "GET", f"/runs/{first['run_id']}"))["job_id"] is None


async def test_a_definition_runs_without_being_stored(api: Api) -> None:
    body = {"definition": definition(), "idempotency_key": "k", "labels": ["x"], "name": "n"}
    run = await call(api, "POST", "/runs", json=body)
    assert (run["version"], run["job_id"], run["labels"], run["name"]) == (None, None, ["x"], "n")
    again = await call(api, "POST", "/runs", json=body)
    assert (again["run_id"], again["replayed"]) == (run["run_id"], True)
    other = await api.call("POST", "/runs", json={**body, "name": "other"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    for wrong in (
        {},
        {"job": "etl"},
        {"definition": {"name": "x"}},
        {"definition": definition(), "parameters": {"q": 1}},
    ):
        assert (await api.call("POST", "/runs", json=wrong)).status_code in {404, 422}, wrong
    listed = await call(api, "GET", "/runs", params={"label": "x", "state": "running"})
    assert [one["run_id"] for one in listed["items"]] == [run["run_id"]]
    assert (await call(api, "GET", "/runs", params={"state": "failed"}))["items"] == []
    assert (await call(api, "GET", "/runs", params={"group_name": "other"}))["items"] == []


async def test_a_wait_ends_with_the_cancel(api: Api) -> None:
    run = (await call(api, "POST", "/runs", json={"definition": definition()}))["run_id"]
    query = {"wait_seconds": 20, "until": "ended"}
    waiting = asyncio.create_task(call(api, "GET", f"/runs/{run}", params=query))
    cancelled = await call(api, "POST", f"/runs/{run}/cancel", json={"reason": "enough"})
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "enough")
    assert (await waiting)["state"] == "cancelled"
    again = await call(api, "POST", f"/runs/{run}/rerun", json={"name": "again"})
    assert (again["rerun_of"], again["name"], again["state"]) == (run, "again", "running")
    assert (await api.call("DELETE", f"/runs/{again['run_id']}")).status_code == 409
    assert (await api.call("DELETE", f"/runs/{run}")).status_code == 204
    assert (await api.call("GET", f"/runs/{run}")).status_code == 404


async def test_readers_see_runs_and_no_values(api: Api) -> None:
    tokens = {}
    for name in ("reader", "stranger"):
        user = await create_user(api.app_state.store, name)
        subject = Subject("user", user.user_id, 1)
        tokens[name] = api.app_state.signer.issue(subject, timedelta(hours=1)).token
    await add_member(api.app_state.store, "admin", "reader", "read")
    run = (await call(api, "POST", "/runs", json={"definition": definition()}))["run_id"]
    shown = await api.call("GET", f"/runs/{run}/definition", token=tokens["reader"])
    assert "SECRET" in shown.text
    assert "s3" not in shown.text
    default = shown.json()["definition"]["parameters"]["p"]
    assert default == {**definition()["parameters"]["p"], "default": None}
    seen = await call(api, "GET", f"/runs/{run}", tokens["reader"])
    assert seen["parameters"] == {"p": None}
    assert (await call(api, "GET", f"/runs/{run}"))["parameters"] == {"p": "x"}
    assert len((await call(api, "GET", "/runs", tokens["reader"]))["items"]) == 1
    assert (await call(api, "GET", "/runs", tokens["stranger"]))["items"] == []
    refused = await api.call("POST", f"/runs/{run}/cancel", token=tokens["reader"])
    assert refused.status_code == 403
    assert (await api.call("GET", f"/runs/{run}", token=tokens["stranger"])).status_code == 404
