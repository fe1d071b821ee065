"""The calls by which worker services claim and report named tasks, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from mitosis.contracts.errors import NoWorkersAvailable
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.task import TaskSubmission
from tests.support.http_api import Api, in_process_api

NAMED = "images/resize@1"


@dataclass
class Scene:
    """A service group, and the token of a healthy service with two slots."""

    api: Api
    token: str

    async def call(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        more = {} if body is None else {"json": body}
        return await self.api.call(method, path, token=self.token, **more, **how)

    async def submit(self, count: int = 1, **fields: Any) -> None:
        async with self.api.client() as client:
            tasks = [TaskSubmission(named_task=NAMED, **fields) for _ in range(count)]
            await client.submit("work", tasks)

    async def claim(self, *held: Any, status: int = 200, **more: Any) -> Any:
        known = [{"task_id": one["task_id"], "attempt": one["attempt"]} for one in held]
        body = {"incarnation": 7, "held": known, "max_tasks": 5, **more}
        answer = await self.call("POST", "/workers/claim", body)
        assert answer.status_code == status, answer.text
        return answer.json()["tasks"] if status == 200 else answer.json()

    async def report(self, one: Any, **more: Any) -> Any:
        report = {
            "task_id": one["task_id"],
            "attempt": one["attempt"],
            "outcome": "succeeded",
            **more,
        }
        body = {"incarnation": 7, "reports": [report]}
        answer = await self.call("POST", "/workers/report", body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def scene(database: str) -> AsyncIterator[Scene]:
    async with in_process_api(database) as api:
        async with api.client() as client:
            await client.create_group(TaskGroupSpec(name="work", kind="service"))
        supported = {"namespace": "images", "name": "resize", "version": "1"}
        body = {
            "worker_id": "one",
            "incarnation": 7,
            "slots": 2,
            "supported_tasks": [{**supported, "configuration": {"size": 3}}],
        }
        made = await api.call("POST", "/workers", json=body)
        it = Scene(api, made.json()["token"])
        await it.call("POST", "/workers/heartbeat", {"incarnation": 7})
        yield it


@pytest.mark.spec("S004-36", "S004-57", "S000-53")
async def test_a_service_claims_executes_and_reports(database: str) -> None:
    async with scene(database) as it:
        await it.submit(3, arguments={"file": "a"})
        first, second = await it.claim()
        assert (first["namespace"], first["name"], first["version"]) == ("images", "resize", "1")
        assert first["configuration"] == {"size": 3}
        assert first["configuration_version"] == 1
        assert first["spec"]["arguments"] == {"file": "a"}
        assert await it.claim(first, second) == []
        answer = await it.report(first, detail={"result": {"width": 3}})
        assert answer == {"standing": "current", "statuses": ["committed"]}
        assert (await it.report(first))["statuses"] == ["duplicate"]
        assert len(await it.claim(second)) == 1
        shown = (await it.api.call("GET", f"/tasks/{first['task_id']}")).json()
        assert shown["state"] == "succeeded"
        assert shown["detail"] == {"result": {"width": 3}}
        assert (shown["worker_id"], shown["configuration_version"]) == ("one", 1)


async def test_a_claim_waits_for_a_submit(database: str) -> None:
    async with scene(database) as it:
        waiting = asyncio.create_task(it.claim(wait_seconds=10))
        await it.submit()
        assert len(await waiting) == 1


@pytest.mark.spec("S000-54", "S002-02", "S002-04")
async def test_the_calls_of_a_process_with_one_task_at_a_time(database: str) -> None:
    async with scene(database) as it:
        query = "/workers/tasks?incarnation=7"
        assert (await it.call("GET", query)).status_code == 204
        await it.submit(2)
        one = (await it.call("GET", query)).json()
        again = (await it.call("GET", query)).json()
        assert (again["task_id"], again["attempt"]) == (one["task_id"], one["attempt"])
        body = {"incarnation": 7, "task_id": one["task_id"], "attempt": 1}

        async def say(**more: Any) -> Any:
            return await it.call("POST", "/workers/tasks", {**body, **more})

        refused = await say(operation="Upload")
        assert (refused.status_code, refused.json()["code"]) == (409, "not_available")
        assert refused.json()["field"] == "operation"
        assert (await say(operation="Finish")).json() == {"standing": "current", "status": None}
        committed = await say(operation="Commit", detail={"result": 1})
        assert committed.json() == {"standing": "current", "status": "committed"}
        assert (await say(operation="Finish")).json()["status"] == "superseded"
        assert (await say(operation="Commit")).json()["status"] == "duplicate"
        two = (await it.call("GET", query)).json()
        body["task_id"] = two["task_id"]
        assert (await say(operation="Cancel")).json()["status"] == "committed"
        shown = (await it.api.call("GET", f"/tasks/{two['task_id']}")).json()
        assert shown["state"] == "cancelled"


async def test_a_cancel_reaches_the_service_with_its_next_heartbeat(database: str) -> None:
    async with scene(database) as it:
        await it.submit()
        (one,) = await it.claim()
        held = [{"task_id": one["task_id"], "attempt": 1}]
        beat = {"incarnation": 7, "held": held}
        assert (await it.call("POST", "/workers/heartbeat", beat)).json()["stop"] == []
        cancelled = await it.api.call(
            "POST", f"/tasks/{one['task_id']}/cancel", json={"reason": "wrong", "grace_seconds": 3}
        )
        assert cancelled.status_code == 200, cancelled.text
        (stop,) = (await it.call("POST", "/workers/heartbeat", beat)).json()["stop"]
        assert (stop["task_id"], stop["superseded"]) == (one["task_id"], True)
        assert (stop["grace_seconds"], stop["reason"]) == (3.0, "wrong")
        late = await it.report(one, outcome="cancelled", started_at=1.0, finished_at=2.0)
        assert late["statuses"] == ["duplicate"]


BAD_CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({"incarnation": 0}, "incarnation"),
    ({"max_tasks": 0}, "max_tasks"),
    ({"max_tasks": 1001}, "max_tasks"),
    ({"wait_seconds": 10.5}, "wait_seconds"),
    ({"held": [{"task_id": "x", "attempt": 1}]}, "held[0].task_id"),
    ({"held": [{"task_id": str(uuid4())}]}, "held[0].attempt"),
    ({"unknown": 1}, "unknown"),
]
BAD_REPORTS: list[tuple[dict[str, Any], str]] = [
    ({"outcome": "done"}, "reports[0].outcome"),
    ({"attempt": 2**31}, "reports[0].attempt"),
    ({"task_id": 5}, "reports[0].task_id"),
    ({"started_at": -1}, "reports[0].started_at"),
]


async def test_refused_bodies_name_the_field(database: str) -> None:
    async with scene(database) as it:
        for change, field in BAD_CLAIMS:
            body = {"incarnation": 7, **change}
            answer = await it.call("POST", "/workers/claim", body)
            found = (answer.status_code, answer.json().get("field"))
            assert found == (422, field), (change, answer.text)
        good = {"task_id": str(uuid4()), "attempt": 1, "outcome": "succeeded"}
        for change, field in BAD_REPORTS:
            reports = {"incarnation": 7, "reports": [{**good, **change}]}
            answer = await it.call("POST", "/workers/report", reports)
            found = (answer.status_code, answer.json().get("field"))
            assert found == (422, field), (change, answer.text)
        unknown = await it.call("POST", "/workers/report", {"incarnation": 7, "reports": [good]})
        assert unknown.json()["statuses"] == ["unknown"]
        many = {"incarnation": 7, "reports": [good] * 5001}
        assert (await it.call("POST", "/workers/report", many)).status_code == 413
        bad = await it.call("GET", "/workers/tasks?incarnation=0")
        assert (bad.status_code, bad.json()["field"]) == (422, "incarnation")


async def test_a_process_that_is_not_registered_is_refused(database: str) -> None:
    async with scene(database) as it:
        await it.submit()
        (one,) = await it.claim()
        await it.call("POST", "/workers/goodbye", {"incarnation": 7})
        over = await it.claim(status=409)
        assert over["code"] == "worker_not_registered"
        assert (await it.report(one))["standing"] == "over"
        body = {"worker_id": "one", "incarnation": 8}
        assert (await it.call("POST", "/workers", body)).status_code == 201
        assert (await it.claim(status=409))["code"] == "superseded"
        assert (await it.report(one)) == {"standing": "superseded", "statuses": ["duplicate"]}


async def test_a_group_of_services_has_its_own_fields(database: str) -> None:
    async with in_process_api(database) as api:
        fields = {"max_managers": 2, "environment_setup_hook": {"command": ["x"]}}
        for field, value in fields.items():
            body = {"name": "other", "kind": "service", field: value}
            refused = await api.call("POST", "/task-groups", json=body)
            assert (refused.status_code, refused.json()["field"]) == (422, field)
        body = {"name": "hosts", "preference_seconds": 3}
        refused = await api.call("POST", "/task-groups", json=body)
        assert (refused.status_code, refused.json()["field"]) == (422, "preference_seconds")
        body = {"name": "work", "kind": "service", "preference_seconds": 3}
        made = await api.call("POST", "/task-groups", json=body)
        assert (made.json()["kind"], made.json()["preference_seconds"]) == ("service", 3.0)
        copy = {"name": "copy", "kind": "service", "max_managers": None, "fence": "finish"}
        assert (await api.call("POST", "/task-groups", json=copy)).status_code == 201
        copy = {"name": "copied", "kind": "managed", "preference_seconds": None}
        assert (await api.call("POST", "/task-groups", json=copy)).status_code == 201
        refused = await api.call("PUT", "/task-groups/work", json={"max_managers": 1})
        assert (refused.status_code, refused.json()["field"]) == (422, "max_managers")


@pytest.mark.spec("S004-35")
async def test_latest_and_a_required_worker_at_the_submit(database: str) -> None:
    async with scene(database) as it:
        path, latest = "/task-groups/work/tasks", {"named_task": "images/resize@latest"}
        body = {"tasks": [latest], "require_worker": True, "idempotency_key": "k"}
        made = await it.api.call("POST", path, json=body)
        assert (made.status_code, made.json()["named_tasks"]) == (201, ["images/resize@1"])
        (one,) = await it.claim()
        assert (one["version"], one["spec"]["named_task"]) == ("1", "images/resize@1")
        body = {"tasks": [{"named_task": "images/resize@2"}], "require_worker": True}
        refused = await it.api.call("POST", path, json=body)
        said = refused.json()
        assert (refused.status_code, said["code"]) == (409, "no_workers_available")
        assert (said["namespace"], said["name"], said["version"]) == ("images", "resize", "2")
        assert said["nearest"] == ["images/resize@1"]
        async with it.api.client() as client:
            with pytest.raises(NoWorkersAvailable):
                await client.submit(
                    "work", [{"named_task": "images/resize@2"}], require_worker=True
                )
            assert len(await client.submit("work", [latest], require_worker=True)) == 1
        unknown = {"tasks": [{"named_task": "images/resise@latest"}]}
        refused = await it.api.call("POST", path, json=unknown)
        assert (refused.status_code, refused.json()["code"]) == (409, "no_workers_available")
        await it.call("POST", "/workers/goodbye", {"incarnation": 7, "reason": "night"})
        again = {"tasks": [latest], "require_worker": True, "idempotency_key": "k"}
        repeated = await it.api.call("POST", path, json=again)
        assert repeated.status_code == 201
        assert repeated.json() == {**made.json(), "replayed": True}
        explained = (await it.api.call("GET", "/task-groups/work/explain")).json()
        assert explained["code"] == "no_workers_available"
        assert "one is disconnected" in explained["line"]


@pytest.mark.spec("S004-06", "S004-35")
async def test_missing_coverage_is_the_reason_with_the_nearest_registered(database: str) -> None:
    async with scene(database) as it:
        async with it.api.client() as client:
            await client.submit("work", [TaskSubmission(named_task="images/resize@2")])
        explained = (await it.api.call("GET", "/task-groups/work/explain")).json()
        assert (explained["code"], explained["waits"]) == ("no_workers_available", True)
        assert "can execute images/resize@2 now: none supports it" in explained["line"]
        assert "nearest registered: images/resize@1" in explained["line"]
        gaps = (await it.api.call("GET", "/named-tasks?available=none")).json()["items"]
        assert [(one["name"], one["version"]) for one in gaps] == [("resize", "2")]
        await it.submit()
        (one,) = await it.claim()
        explained = (await it.api.call("GET", "/task-groups/work/explain")).json()
        assert explained["code"] == "working"
        assert explained["line"].startswith("tasks run on one; no worker service")
        task = (await it.api.call("GET", f"/tasks/{one['task_id']}/explain")).json()
        assert task["line"].startswith("it has been running on one for")
