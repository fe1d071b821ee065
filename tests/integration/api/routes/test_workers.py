"""The calls of worker services over HTTP, and bodies that are refused with the name of the field."""

import json
from typing import Any

import pytest

from tests.support.http_api import Api, in_process_api

ACCEPTED: dict[str, Any] = {
    "worker_id": "one",
    "supported_tasks": [{"namespace": "n", "name": "t"}],
}


def body(**changes: Any) -> dict[str, Any]:
    return {**ACCEPTED, **changes}


def with_task(**facts: Any) -> dict[str, Any]:
    return body(supported_tasks=[{"namespace": "n", "name": "t", **facts}])


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


TASK = "supported_tasks[0]"
REFUSED: list[tuple[Any, int, str]] = [
    (body(worker_id=""), 422, "worker_id"),
    (body(worker_id="x" * 256), 422, "worker_id"),
    (body(worker_id="heartbeat"), 422, "worker_id"),
    (body(worker_id="näme"), 422, "worker_id"),
    (body(worker_id="a\u202eb"), 422, "worker_id"),
    (body(slots=0), 422, "slots"),
    (body(slots=True), 422, "slots"),
    (body(silence_seconds=9.9), 422, "silence_seconds"),
    (body(incarnation=2**63), 422, "incarnation"),
    (body(tags=["a b"]), 422, "tags[0]"),
    (body(tags=[f"t{i}" for i in range(101)]), 422, "tags"),
    (body(metadata={"a": "x" * 16_385}), 422, "metadata"),
    (body(metadata=[1]), 422, "metadata"),
    (body(metadata={"a": nested(40)}), 422, "metadata"),
    (body(groups=["admin:owner"]), 422, "groups"),
    (body(groups=["missing"]), 404, "groups"),
    (body(unknown=1), 422, "unknown"),
    (
        body(connection_info={"connection_type": "tcp", "host": "h"}),
        422,
        "connection_info.listener_port",
    ),
    (body(connection_info={"connection_type": "unix"}), 422, "connection_info.path"),
    (body(connection_info={"listener_port": 65_536}), 422, "connection_info.listener_port"),
    (
        body(connection_info={"supported_commands": ["rm"]}),
        422,
        "connection_info.supported_commands[0]",
    ),
    (with_task(namespace="a/b"), 422, f"{TASK}.namespace"),
    (with_task(version="latest"), 422, f"{TASK}.version"),
    (with_task(priority=2**31), 422, f"{TASK}.priority"),
    (with_task(max_concurrent=0), 422, f"{TASK}.max_concurrent"),
    (with_task(configuration={"a": "x" * 65_536}), 422, f"{TASK}.configuration"),
    (with_task(configuration={"a": nested(33)}), 422, f"{TASK}.configuration"),
    (body(supported_tasks=[{"namespace": "n", "name": "t"}] * 2), 422, "supported_tasks"),
    (
        body(supported_tasks=[{"namespace": "n", "name": f"t{i}"} for i in range(1001)]),
        422,
        "supported_tasks",
    ),
    (
        body(supported_tasks=[{"namespace": "n", "name": f"t{i}"} for i in range(100_000)]),
        413,
        "limit_bytes",
    ),
]
RAW: list[tuple[bytes, str]] = [
    (b'{"worker_id":"one","metadata":{"a":NaN}}', "metadata.a"),
    (b'{"worker_id":"one","metadata":{"a":1e999}}', "metadata.a"),
    (b'{"worker_id":"one","metadata":{"a":"\\ud800"}}', "metadata.a"),
    (b'{"worker_id":"one","metadata":{"a":"\\u0000"}}', "metadata.a"),
    (b'{"worker_id":"one","metadata":{"a":"\xff"}}', "body"),
    (b'{"worker_id":"one","metadata":' + b'{"a":' * 100_000, "body"),
]


@pytest.mark.spec("S004-25", "S004-26", "S004-27")
async def test_bodies_are_refused_with_the_field_and_leave_nothing(database: str) -> None:
    async with in_process_api(database) as api:
        wrong = []
        for value, status, field in REFUSED:
            answer = await api.call("POST", "/workers", json=value)
            said = answer.json()
            if (answer.status_code, field in (said.get("field"), *said)) != (status, True):
                wrong.append(f"{field}: {answer.text[:300]}")
        for raw, field in RAW:
            answer = await api.call("POST", "/workers", content=raw)
            if (answer.status_code, answer.json().get("field")) != (422, field):
                wrong.append(f"{raw[:60]!r}: {answer.text[:300]}")
        assert wrong == []
        assert (await api.call("GET", "/workers")).json()["items"] == []
        assert (await api.call("GET", "/named-tasks")).json()["items"] == []


async def call(api: Api, method: str, path: str, token: str = "", **sent: Any) -> Any:
    answer = await api.call(method, path, token=token, **({"json": sent} if sent else {}))
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


@pytest.mark.spec("S002-01", "S002-06", "S004-59")
async def test_the_life_of_a_worker_service_over_http(database: str) -> None:
    async with in_process_api(database) as api:
        made = await call(api, "POST", "/workers", **ACCEPTED, tags=["gpu"])
        token, beat = made["token"], {"incarnation": made["incarnation"]}
        assert (made["heartbeat_seconds"], made["silence_seconds"]) == (30, 600)
        path = "/named-tasks/n/t/1.0.0"
        missing = await api.call("GET", path + "/available-worker")
        assert (missing.status_code, missing.json()["code"]) == (409, "no_workers_available")
        assert not (await call(api, "POST", "/workers/heartbeat", token, **beat))["draining"]
        found = await call(api, "GET", path + "/available-worker")
        assert [found] == await call(api, "GET", path + "/workers")
        assert (found["worker_id"], found["priority"]) == ("one", 100)
        renewed = await call(api, "POST", "/workers/token", token, lifetime="1h")
        await call(api, "POST", "/workers/heartbeat", renewed["token"], **beat)
        shown = await call(api, "POST", "/workers/one/drain", reason="disks")
        assert (shown["health"], shown["drain_reason"], shown["tags"]) == (
            "healthy",
            "disks",
            ["gpu"],
        )
        assert (await call(api, "POST", "/workers/heartbeat", token, **beat))["draining"]
        assert (await call(api, "POST", "/workers/one/resume"))["draining_since"] is None
        again = await call(api, "POST", "/workers", token, **ACCEPTED)
        assert again["incarnation"] == made["incarnation"] + 1
        late = await api.call("POST", "/workers/heartbeat", token=token, json=beat)
        assert (late.status_code, late.json()["code"]) == (409, "superseded")
        last = {"incarnation": again["incarnation"]}
        await call(api, "POST", "/workers/goodbye", token, **last, reason="done")
        over = await api.call("POST", "/workers/heartbeat", token=token, json=last)
        assert (over.status_code, over.json()["code"]) == (409, "worker_not_registered")
        history = (await call(api, "GET", "/workers/one/registrations"))["items"]
        assert [one["failure_reason"] for one in history] == ["done", "new_incarnation"]
        gaps = await call(api, "GET", "/named-tasks?available=none")
        assert [one["name"] for one in gaps["items"]] == ["t"]
        unknown = await api.call("GET", "/workers/none")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "worker_not_found")


async def test_no_answer_but_the_registration_has_a_token(database: str) -> None:
    async with in_process_api(database) as api:
        made = await call(api, "POST", "/workers", **ACCEPTED)
        for path in ("/workers", "/workers/one", "/workers/one/registrations", "/named-tasks"):
            assert made["token"] not in json.dumps(await call(api, "GET", path))
