"""Submitting and looking at tasks over HTTP: whole or not at all, once under a key."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from mitosis.contracts.errors import InvalidRequest, TaskGroupClosed, TooLarge
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import ListedState, TaskState
from mitosis.contracts.task import TaskSubmission
from mitosis.store.users.accounts import add_member
from tests.support.http_api import Api, in_process_api, problem

TASKS = "/task-groups/work/tasks"
OK = {"command": ["true"]}


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        async with opened.client() as client:
            await client.create_group(TaskGroupSpec(name="work"))
        yield opened


async def total(api: Api) -> int:
    async with api.client() as client:
        return (await client.group("work")).tasks_total


@pytest.mark.new_sessions
@pytest.mark.spec("S002-30", "S000-165")
async def test_any_number_of_tasks_from_a_generator(api: Api) -> None:
    def many() -> Iterator[TaskSubmission]:
        for number in range(12_345):
            yield TaskSubmission(command=["echo", str(number)], priority=number % 3)

    async with api.client() as client:
        ids = await client.submit("work", many())
        assert len(set(ids)) == 12_345
        shown = {task.task_id: task async for task in client.tasks("work")}
    assert list(shown) == sorted(ids)  # parts are sent side by side
    assert shown[ids[12_000]].spec["command"] == ["echo", "12000"]
    assert {task.state for task in shown.values()} == {TaskState.READY}


@pytest.mark.spec("S002-102")
async def test_a_submission_answers_and_moves_the_counters(api: Api) -> None:
    answer = await api.call("POST", TASKS, json={"tasks": [OK, OK]})
    assert answer.status_code == 201
    assert answer.json()["created"] == 2
    async with api.client() as client:
        group = await client.group("work")
    assert (group.tasks_total, group.tasks_unfinished) == (2, 2)
    assert group.last_task_submitted_at is not None


async def test_the_same_key_creates_once_also_in_a_race(api: Api) -> None:
    async with api.client() as client:
        tasks = [OK] * 12_000
        answers = await asyncio.gather(
            *(client.submit("work", tasks, idempotency_key="one") for _ in range(3))
        )
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) == 12_000
    assert await total(api) == 12_000
    body = {"tasks": [OK] * 10_000, "idempotency_key": "one", "part": 0}
    again = (await api.call("POST", TASKS, json=body)).json()
    assert (again["replayed"], again["task_ids"]) == (True, answers[0][:10_000])


async def test_a_dedup_key_gives_the_live_task(api: Api) -> None:
    async with api.client() as client:
        (first,) = await client.submit("work", [{**OK, "dedup_key": "k"}])
        assert await client.submit("work", [OK, {**OK, "dedup_key": "k"}]) == [first + 1, first]
    assert await total(api) == 2


BAD_TASKS: list[tuple[Any, str, str]] = [
    ({"tasks": []}, "tasks", "length >= 1"),
    ({"tasks": [OK], "extra": 1}, "extra", "unknown field"),
    ({"tasks": [OK, {**OK, "prio": 1}]}, "tasks[1].prio", "unknown field"),
    ({"tasks": [OK, {"command": []}]}, "tasks[1].command", "must name a program"),
    ({"tasks": [OK, {}]}, "tasks[1]", "exactly one of command and handler"),
    ({"tasks": [OK, {"command": ["a\0"]}]}, "tasks[1].command[0]", "NUL"),
    ({"tasks": [OK, {**OK, "dedup_key": "a\0"}]}, "tasks[1].dedup_key", "NUL"),
    ({"tasks": [OK], "idempotency_key": "\0"}, "idempotency_key", "NUL"),
    ({"tasks": [OK, {**OK, "timeout_seconds": -1}]}, "tasks[1].timeout_seconds", "> 0"),
    ({"tasks": [OK], "part": -1}, "part", ">= 0"),
    ({"tasks": [OK], "idempotency_key": ""}, "idempotency_key", "length >= 1"),
]


@pytest.mark.parametrize(("body", "field", "says"), BAD_TASKS)
async def test_a_bad_task_is_named_and_nothing_is_half_done(
    api: Api, body: Any, field: str, says: str
) -> None:
    answer = await api.call("POST", TASKS, json=body)
    with problem(answer, 422, "invalid_request") as document:
        assert document["field"] == field
        assert says in document["detail"]
    assert await total(api) == 0


async def test_what_is_too_large_is_told_the_limit(api: Api) -> None:
    answer = await api.call("POST", TASKS, json={"tasks": [OK] * 10_001})
    with problem(answer, 413, "too_large") as document:
        assert document["limit"] == 10_000
        assert "SDK" in document["detail"]
    answer = await api.call("POST", TASKS, json={"tasks": [OK, {"command": ["x" * 1_000_001]}]})
    with problem(answer, 413, "too_large") as document:
        assert (document["field"], document["limit_bytes"]) == ("tasks[1]", 1_000_000)
    for body in (b" " * 64_000_001, in_chunks(b" " * 1_000_000, 65)):
        with problem(await api.call("POST", TASKS, content=body), 413, "too_large") as document:
            assert document["limit_bytes"] == 64_000_000
    assert await total(api) == 0


async def in_chunks(chunk: bytes, count: int) -> AsyncIterator[bytes]:
    """A body that does not say how long it is."""
    for _ in range(count):
        yield chunk


async def test_bytes_that_are_no_text_name_the_task(api: Api) -> None:
    body = b'{"tasks":[{"command":["true"]},{"command":["\xff"]}]}'
    with problem(await api.call("POST", TASKS, content=body), 422, "invalid_request") as document:
        assert document["field"] == "tasks[1]"


async def test_the_sdk_says_the_same_errors(api: Api) -> None:
    async with api.client() as client:
        with pytest.raises(InvalidRequest) as refused:
            await client.submit("work", [*[OK] * 10_005, {"command": []}])
        assert refused.value.facts["field"] == "tasks[10005].command"
        with pytest.raises(TooLarge):
            await client.submit("work", [{"command": ["x" * 1_000_001]}])


async def test_arguments_are_kept_as_they_are(api: Api) -> None:
    """PostgreSQL keeps them as text of JSON, so no character is lost."""
    arguments = {"text": "a\x01b \u00e4 \U0001f40b \\u0000", "numbers": [1, -0.5, 2**70, None]}
    async with api.client() as client:
        await client.submit("work", [{"handler": "m:f", "arguments": arguments}])
        (task,) = [item async for item in client.tasks("work")]
    assert task.spec["arguments"] == arguments


@pytest.mark.spec("S002-104", "C-09", "S000-146")
async def test_a_closed_group_takes_no_tasks(api: Api) -> None:
    async with api.client() as client:
        await client.close_group("work")
        with pytest.raises(TaskGroupClosed):
            await client.submit("work", [OK])
        refused = await api.call("POST", TASKS, json={"tasks": [OK]})
        with problem(refused, 409, "task_group_closed"):
            pass
        assert await total(api) == 0
        await client.reopen("work")
        await client.submit("work", [OK])


async def test_tasks_are_pages_by_state(api: Api) -> None:
    async with api.client() as client:
        ids = await client.submit("work", [OK] * 5)
        assert [t.task_id async for t in client.tasks("work", state=TaskState.READY)] == ids
        assert [t async for t in client.tasks("work", state=TaskState.FAILED)] == []
        assert [t async for t in client.tasks("work", state=ListedState.HELD)] == []
    page = (await api.call("GET", TASKS + "?limit=3")).json()
    assert [item["task_id"] for item in page["items"]] == ids[:3]
    page = (await api.call("GET", f"{TASKS}?limit=3&after={page['next']}")).json()
    assert [item["task_id"] for item in page["items"]] == ids[3:]
    assert page["next"] is None
    for query in ("after=x", "limit=1001", "state=done"):
        with problem(await api.call("GET", f"{TASKS}?{query}"), 422, "invalid_request"):
            pass


async def test_who_may_write_to_a_group_may_cancel_its_tasks(api: Api) -> None:
    token, reader = await api.user("ann"), await api.user("ben")
    await add_member(api.app_state.store, "ann", "ben", "read")
    async with api.client(token) as ann:
        await ann.create_group(TaskGroupSpec(name="hers"))
        (number,) = await ann.submit("hers", [OK])
        (task,) = [task async for task in ann.tasks("hers")]
        path, body = "/task-groups/ann/hers/cancel-tasks", {"task_ids": [number]}
        one = f"/tasks/{task.task_uuid}/cancel"
        for address in (path, one):
            sent = body if address == path else {}
            refused = await api.call("POST", address, token=reader, json=sent)
            assert (refused.status_code, refused.json()["needed"]) == (403, "write")
        stranger = await api.user("eve")
        for address in (path, one):
            sent = body if address == path else {}
            assert (await api.call("POST", address, token=stranger, json=sent)).status_code == 404
        first = await ann.cancel_task(task.task_uuid, reason="enough")
        assert (first.outcome, first.state) == ("cancelled", "cancelled")
        again = await ann.cancel_task(task.task_uuid)
        assert (again.outcome, again.state) == ("ended", "cancelled"), "repeating is harmless"
        ended = await ann.task(task.task_uuid)
        assert (ended.state, ended.kind) == (TaskState.CANCELLED, "cancelled")
        assert ended.detail == {"message": "cancelled: enough"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "filter"),
        ({"task_ids": [1], "filter": {}}, "filter"),
        ({"task_ids": []}, "task_ids"),
        ({"task_ids": ["1"]}, "task_ids[0]"),
        ({"filter": {"states": ["failed"]}}, "filter.states[0]"),
        ({"filter": {"label": "x"}}, "filter.label"),
        ({"task_ids": [1], "grace_seconds": -1}, "grace_seconds"),
    ],
)
async def test_a_cancel_that_names_nothing_right_is_refused(
    api: Api, body: dict[str, Any], field: str
) -> None:
    answer = await api.call("POST", "/task-groups/work/cancel-tasks", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_more_tasks_than_one_part_are_cancelled_by_a_filter(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mitosis.store.tasks.cancel.CHUNK", 7)
    async with api.client() as client:
        ids = await client.submit("work", [OK] * 20)
        dry = await client.cancel_tasks("work", {}, dry_run=True)
        assert (dry.cancelled, dry.stopping) == (20, 0)
        assert (await client.cancel_tasks("work", ids[:1])).cancelled == 1
        assert (await client.cancel_tasks("work", {"states": ["ready"]})).cancelled == 19
        assert (await client.group("work")).tasks_cancelled == 20
