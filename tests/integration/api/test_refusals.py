"""Refusals of the API say where and what would be right, in words of HTTP and JSON, the same everywhere."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from api.app import create_app
from mitosis.contracts.errors import AlreadyExists
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.contracts.worker_services import RegisterWorker
from tests.support.http_api import Api, in_process_api, problem, said_hello

TASKS = "/task-groups/work/tasks"
OK = {"command": ["true"]}
JSON = "application/json"


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        async with opened.client() as client:
            await client.create_group(TaskGroupSpec(name="work"))
            await client.save_template("work", {})
            await client.define_job({"name": "work", "steps": {"a": {"command": ["true"]}}})
            await client.create_schedule("work", cron="@daily")
        yield opened


def routes_with_a_body(api: Api, manager_id: UUID, run_id: str) -> list[tuple[str, str]]:
    paths = create_app(api.app_state).openapi()["paths"]
    found = [
        (method.upper(), path.removeprefix("/api/v1"))
        for path, item in paths.items()
        for method, operation in item.items()
        if "requestBody" in operation
    ]
    assert len(found) >= 20
    filled = {
        "reference": "work",
        "manager_id": manager_id,
        "worker_id": "mailer",
        "username": "admin",
        "run_id": run_id,
        "group_name": "admin",
    }
    others = dict.fromkeys(("task_group_id", "task_uuid"), uuid4())
    return [(method, path.format(**filled, **others)) for method, path in found]


async def test_a_body_is_json_by_name_on_every_route(api: Api) -> None:
    async with api.client() as client:
        service = (await client.register_worker(RegisterWorker(worker_id="mailer"))).token
    calls = ("heartbeat", "goodbye", "token", "claim", "report", "progress", "tasks")
    of_services = {f"/workers/{call}" for call in calls}
    steps = {"name": "job", "steps": {"a": {"command": ["true"]}}}
    run = (await api.call("POST", "/runs", json={"definition": steps})).json()["run_id"]
    async with said_hello(api) as (manager, answer):
        host, manager_id = manager.token, answer.manager_id
        for method, route in routes_with_a_body(api, manager_id, run):
            path = route + "?epoch=1" * (route == "/managers/tasks")
            of_an_agent = path.startswith("/managers/") and str(manager_id) not in path
            token = host if of_an_agent else service if route in of_services else ""

            async def status(kind: str | None, content: Any = b'{"no":1}') -> int:
                headers = {} if kind is None else {"Content-Type": kind}
                how = {"content": content, "headers": headers}
                refusal = await api.call(method, path, token=token, **how)  # noqa: B023
                if refusal.status_code == 415:
                    with problem(refusal, 415, "unsupported_media_type") as document:
                        assert "Content-Type: application/json" in document["detail"]
                        assert document["allowed"] == [JSON]
                return refusal.status_code

            for kind in ("application/x-www-form-urlencoded", "text/plain", "json", JSON + "x", ""):
                assert await status(kind) == 415, (method, path, kind)
            assert await status("text/plain", in_chunks(b"", b"{}")) == 415, (method, path)
            for kind in (JSON, "Application/JSON; charset=utf-8", "application/vnd.us+json"):
                assert await status(kind) == 422, (method, path, kind)


async def in_chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_no_type_is_needed_where_there_is_no_body(api: Api) -> None:
    answer = await api.call("POST", "/task-groups/work/close", headers={"Content-Type": "x/y"})
    assert answer.status_code == 200


NUL = "a\0"
WITH_NUL: list[tuple[str, str, Any, str]] = [
    ("POST", "/task-groups", {"name": NUL}, "name"),
    ("POST", "/task-groups", {"name": "x", "tags": ["a", "b", NUL]}, "tags[2]"),
    (
        "POST",
        "/task-groups",
        {"name": "x", "environment_setup_hook": {"command": ["a", NUL]}},
        "environment_setup_hook.command[1]",
    ),
    (
        "POST",
        "/task-groups",
        {"name": "x", "worker_allocation_plan": {"environment": {"K": NUL}}},
        "worker_allocation_plan.environment.K",
    ),
    (
        "POST",
        "/task-groups",
        {"name": "x", "worker_allocation_plan": {"environment": {NUL: "v"}}},
        "worker_allocation_plan.environment",
    ),
    ("POST", "/login", {"username": NUL, "password": "x"}, "username"),
    ("POST", "/login", {"username": "x", "password": NUL}, "password"),
    ("POST", "/managers", {"groups": ["admin", NUL]}, "groups[1]"),
    ("POST", "/task-groups/work/close", {"reason": NUL}, "reason"),
    ("POST", "/task-groups/work/close", NUL, "body"),
    ("POST", TASKS, {"tasks": [OK], "idempotency_key": NUL}, "idempotency_key"),
    ("POST", TASKS, {"tasks": [OK, {"command": ["a", NUL]}]}, "tasks[1].command[1]"),
    ("POST", TASKS, {"tasks": [OK, {**OK, "labels": ["a", NUL]}]}, "tasks[1].labels[1]"),
    ("POST", TASKS, {"tasks": [{**OK, "working_directory": "/\0"}]}, "tasks[0].working_directory"),
    ("POST", TASKS, {"tasks": [{**OK, "environment": {"A": NUL}}]}, "tasks[0].environment.A"),
    (
        "POST",
        TASKS,
        {"tasks": [{"handler": "m:f", "arguments": {"x": [NUL]}}]},
        "tasks[0].arguments.x[0]",
    ),
    ("GET", "/task-groups?name=%00", None, "name"),
    ("GET", "/task-groups?tag=a&tag=%00", None, "tag"),
    ("GET", "/task-groups?after=%00", None, "after"),
    ("GET", "/task-groups/a%00b", None, "reference"),
    ("GET", "/task-groups/admin/a%00/tasks", None, "reference"),
    ("GET", "/tasks/%00", None, "task_uuid"),
    ("DELETE", "/task-groups/a%00b", None, "reference"),
]


async def test_a_nul_character_is_refused_where_it_stands(api: Api) -> None:
    for method, path, body, field in WITH_NUL:
        answer = await api.call(method, path, **({} if body is None else {"json": body}))
        with problem(answer, 422, "invalid_request") as document:
            assert document["field"] == field, (path, body)
            assert document["detail"] == "must not contain a NUL character"


HANDLER = b'{"tasks":[{"handler":"m:f","arguments":{"x":[1,%s]}}]}'
GROUP = b'{"name":"x","tags":[%s]}'
TEXTS: list[tuple[str, bytes, str, str]] = [
    (TASKS, HANDLER % (b"[" * 100_000), "body", "nested too deeply"),
    (TASKS, HANDLER % (b"[" * 189 + b"]" * 189), "tasks[0].arguments", "deeper than 190 levels"),
    ("/task-groups", b"[" * 100_000, "body", "nested too deeply"),
    ("/task-groups", GROUP % (b"[" * 900 + b"]" * 900), "tags[0]", "must be a string"),
    (TASKS, b'{"tasks":[{"command":["a","\\ud800"]}]}', "tasks[0].command[1]", "\\ud800"),
    (TASKS, HANDLER % b'"\\udc00x"', "tasks[0].arguments.x[1]", "half a character"),
    ("/task-groups", GROUP % b'"a","\\ud83dx"', "tags[1]", "lone surrogate"),
    ("/task-groups", b'{"\\ud800":1}', "body", "lone surrogate"),
    (TASKS, HANDLER % b"1e400", "tasks[0].arguments.x[1]", "1e400 is out of range"),
    (TASKS, HANDLER % (b"1" * 5000), "tasks[0].arguments.x[1]", "5000 digits"),
    (TASKS, HANDLER % b"NaN", "tasks[0].arguments.x[1]", "NaN is no number of JSON"),
    (TASKS, HANDLER % b"-Infinity", "tasks[0].arguments.x[1]", "-Infinity is no number"),
    ("/task-groups", b'{"name":"x","priority":1e400}', "priority", "out of range"),
    ("/task-groups", b'{"name":', "body", "not JSON"),
]


async def test_text_that_is_no_usable_json_is_located(api: Api) -> None:
    for path, body, field, says in TEXTS:
        answer = await api.call("POST", path, content=body)
        with problem(answer, 422, "invalid_request") as document:
            assert document["field"] == field, body[:100]
            assert says in document["detail"]


MISFITS: list[tuple[str, Any, str, str]] = [
    ("/task-groups", [], "body", "must be an object"),
    ("/task-groups", {}, "name", "this field is required"),
    ("/task-groups", {"name": 1}, "name", "must be a string"),
    ("/task-groups", {"name": "x", "tags": "a"}, "tags", "must be an array"),
    ("/task-groups", {"name": "x", "manager_ids": "a"}, "manager_ids", "must be an array"),
    ("/task-groups", {"name": "x", "reopen_on_submit": 1}, "reopen_on_submit", "true or false"),
    (
        "/task-groups",
        {"name": "x", "environment_setup_hook": {"command": ["a"], "environment": []}},
        "environment_setup_hook.environment",
        "must be an object",
    ),
    (
        "/task-groups",
        {"name": "x", "environment_setup_hook": {"command": ["a"], "environment": {"K": 1}}},
        "environment_setup_hook.environment.K",
        "must be a string",
    ),
    (
        "/task-groups",
        {"name": "x", "worker_allocation_plan": {"environment": {"A": "", "A=B": ""}}},
        "worker_allocation_plan.environment.A=B",
        "must be the name of an environment variable",
    ),
    (
        "/task-groups",
        {"name": "x", "worker_allocation_plan": {"cpu_binding": {"cores": []}}},
        "worker_allocation_plan.cpu_binding.cores",
        "must have at least 1 item",
    ),
    *(
        (
            "/task-groups",
            {"name": "x", "worker_allocation_plan": {"worker_count": value}},
            "worker_allocation_plan.worker_count",
            "must be an integer",
        )
        for value in (True, "2", 2.0)
    ),
    ("/task-groups/work/cancel", {"grace_seconds": "5"}, "grace_seconds", "must be a number"),
    (TASKS, {"tasks": {}}, "tasks", "must be an array, not an object"),
    (
        TASKS,
        {"tasks": [{**OK, "priority": True}]},
        "tasks[0].priority",
        "must be an integer, not a boolean",
    ),
    (
        TASKS,
        {"tasks": [{**OK, "priority": "2"}]},
        "tasks[0].priority",
        "must be an integer, not a string",
    ),
    (
        TASKS,
        {"tasks": [OK, {**OK, "environment": {"A": "", "B": 1}}]},
        "tasks[1].environment.B",
        "must be a string, not an integer",
    ),
]


async def test_misfits_are_named_in_words_of_json(api: Api) -> None:
    for path, body, field, says in MISFITS:
        answer = await api.call("POST", path, json=body)
        with problem(answer, 422, "invalid_request") as document:
            assert document["field"] == field, body
            assert says in document["detail"]


# --- names and ids ----------------------------------------------------------------------------------

AN_ID = "0198c0de-0000-7000-8000-00000000000a"
IDS = (AN_ID, AN_ID.upper(), AN_ID.replace("-", ""), "0" * 32, "0-" * 31 + "0")


async def test_a_name_that_reads_as_an_id_is_refused(api: Api) -> None:
    for path in ("/task-groups", "/managers"):
        for name in IDS:
            answer = await api.call("POST", path, json={"name": name})
            with problem(answer, 422, "invalid_request") as document:
                assert document["field"] == "name"
                assert "UUID" in document["detail"]
        for name in ("0" * 31, "g" + "0" * 31):
            assert (await api.call("POST", path, json={"name": name})).status_code == 201


async def test_a_group_that_was_named_like_an_id_is_reached(api: Api) -> None:
    async with api.client() as client:
        made = await client.group("work")
        async with api.app_state.store.database.connection() as connection:
            await connection.execute("UPDATE task_groups SET name = %s", (AN_ID,))
        assert (await client.group(f"admin/{AN_ID}")).task_group_id == made.task_group_id
        assert (await client.group(made.task_group_id)).name == AN_ID


async def test_hosts_of_one_name_are_told_apart(api: Api) -> None:
    """A host that lost its folder registers anew under its name, so a name is not taken."""
    async with api.client() as client:
        with pytest.raises(AlreadyExists):
            await client.create_group(TaskGroupSpec(name="work"))
        twins = [await client.register_manager(RegisterManager(name="vm")) for _ in range(2)]
        hosts = (await client.explain("work")).hosts
        assert {host.manager_id for host in hosts} == {one.manager_id for one in twins}
        assert {host.manager_name for host in hosts} == {"vm"}


async def test_a_host_without_a_name_gets_one(api: Api) -> None:
    made = [(await api.call("POST", "/managers", json={})).json() for _ in range(2)]
    assert made[0]["name"] != made[1]["name"]
    async with api.client() as client:
        for one in made:
            assert one["name"].startswith("host-")
            assert (await client.manager(UUID(one["manager_id"]))).name == one["name"]


# --- pages, paths and methods -----------------------------------------------------------------------


async def test_a_cursor_belongs_to_its_list(api: Api) -> None:
    async with api.client() as client:
        await client.create_group(TaskGroupSpec(name="other"))
        for group in ("work", "other"):
            await client.submit(group, [OK] * 2)
        for _ in range(2):
            await client.register_manager(RegisterManager())
    lists = ("/task-groups", TASKS, "/task-groups/other/tasks", "/managers")
    cursors = {
        path: (await api.call("GET", path, params={"limit": 1})).json()["next"] for path in lists
    }
    assert len(set(cursors.values())) == len(lists)
    for path in lists:
        for source, cursor in cursors.items():
            answer = await api.call("GET", path, params={"after": cursor})
            if source == path:
                assert answer.status_code == 200
                continue
            with problem(answer, 422, "invalid_request") as document:
                assert document["field"] == "after"


async def test_what_no_route_has_is_answered_by_documented_codes(api: Api) -> None:
    with problem(await api.call("GET", "/nowhere"), 404, "not_found"):
        pass
    with problem(await api.call("PATCH", "/managers"), 405, "method_not_allowed"):
        pass
    answer = await api.call("DELETE", "/login")
    with problem(answer, 405, "method_not_allowed"):
        assert answer.headers["allow"] == "POST"
