"""Task groups over HTTP: create, list, change, verbs, and every refusal."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.errors import AlreadyExists, Conflict, InvalidTransition, TaskGroupClosed
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import TaskGroupSpec, TaskGroupUpdate
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.store.control.control_store import ControlStore
from tests.support.http_api import Api, in_process_api, problem


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


@pytest.mark.spec("S002-31", "S002-256", "S002-257")
async def test_a_group_is_what_was_asked_for(api: Api) -> None:
    spec = TaskGroupSpec(
        name="everything",
        tags=frozenset({"linux", "gpu"}),
        labels=frozenset({"campaign-7"}),
        priority=-5,
        worker_allocation_plan=WorkerAllocationPlan(
            worker_count=2,
            cpu_binding=CpuBinding(cores=(0, 1), strategy=CpuBindingStrategy.EXCLUSIVE),
        ),
        environment_setup_hook=HookSpec(command=("mkdir", "work"), timeout=timedelta(minutes=1)),
        environment_teardown_hook=HookSpec(command=("rmdir", "work")),
        auto_close_timeout=timedelta(minutes=30),
        close_deadline=datetime(2099, 1, 1, tzinfo=UTC),
        max_managers=3,
        host_lost_after=timedelta(seconds=15),
    )
    async with api.client() as client:
        made = await client.create_group(spec)
        shown = await client.group("everything")
    assert made == shown
    assert (made.state, made.settled, made.group_name) == (TaskGroupState.OPEN, False, "admin")
    for field in (
        "name",
        "priority",
        "worker_allocation_plan",
        "environment_setup_hook",
        "environment_teardown_hook",
        "auto_close_timeout",
        "close_deadline",
        "max_managers",
    ):
        assert made.model_dump()[field] == spec.model_dump()[field], field
    assert (frozenset(made.tags), frozenset(made.labels)) == (spec.tags, spec.labels)
    assert made.workflow_id == f"task-group/{made.task_group_id}"


BAD_GROUPS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "name", "required"),
    ({"name": "a b"}, "name", "1 to 100 letters"),
    ({"name": "x", "colour": 1}, "colour", "unknown field"),
    (
        {"name": "x", "worker_allocation_plan": {"worker_count": -1}},
        "worker_allocation_plan.worker_count",
        "greater than or equal to 1",
    ),
    (
        {"name": "x", "worker_allocation_plan": {"cpu_binding": {"cores": [0, -1]}}},
        "worker_allocation_plan.cpu_binding.cores",
        "not negative",
    ),
    (
        {
            "name": "x",
            "worker_allocation_plan": {
                "worker_count": 3,
                "cpu_binding": {"strategy": "exclusive", "cores": [0, 1]},
            },
        },
        "worker_allocation_plan.worker_count",
        "3 exclusive workers need 3 cores",
    ),
    (
        {
            "name": "x",
            "worker_allocation_plan": {
                "cpu_binding": {"strategy": "shared", "cores_per_worker": 2}
            },
        },
        "worker_allocation_plan.cpu_binding.cores_per_worker",
        "only exclusive workers have a number of cores of their own, not shared ones",
    ),
    (
        {"name": "x", "environment_setup_hook": {"command": []}},
        "environment_setup_hook.command",
        "must name a program",
    ),
    ({"name": "x", "auto_close_timeout": "soon"}, "auto_close_timeout", "90s, 10m, 1h30m"),
    ({"name": "x", "auto_close_timeout": 1e300}, "auto_close_timeout", "longer than"),
    ({"name": "x", "auto_close_timeout": 0}, "auto_close_timeout", "longer than 0"),
    ({"name": "x", "host_lost_after": 9}, "host_lost_after", "at least 10 seconds"),
    ({"name": "x", "priority": 2**31}, "priority", "less than or equal to"),
    ({"name": "x", "tags": ["a b"]}, "tags[0]", "without spaces"),
    ({"name": "x", "close_deadline": "2030-01-01T00:00:00"}, "close_deadline", "timezone"),
]


@pytest.mark.parametrize(("body", "field", "says"), BAD_GROUPS)
async def test_a_bad_group_is_refused_by_field(
    api: Api, body: dict[str, Any], field: str, says: str
) -> None:
    answer = await api.call("POST", "/task-groups", json=body)
    with problem(answer, 422, "invalid_request") as document:
        assert document["field"] == field
        assert says in document["detail"]
    async with api.client() as client:
        assert [group async for group in client.groups()] == []


async def test_a_body_must_be_json_and_text(api: Api) -> None:
    for raw in (b"{", b"\xff", b"[" * 100_000, b""):
        answer = await api.call(
            "POST", "/task-groups", content=raw, headers={"Content-Type": "application/json"}
        )
        with problem(answer, 422, "invalid_request") as document:
            assert document["field"] == "body"
    large = b'{"name":"' + b"x" * 2_000_000 + b'"}'
    answer = await api.call("POST", "/task-groups", content=large)
    with problem(answer, 413, "too_large") as document:
        assert document["limit_bytes"] == 2_000_000


async def test_a_name_is_taken_once(api: Api) -> None:
    async with api.client() as client:
        await client.create_group(TaskGroupSpec(name="work"))
        with pytest.raises(AlreadyExists):
            await client.create_group(TaskGroupSpec(name="work"))
    async with api.client(await api.user("ann")) as ann:
        await ann.create_group(TaskGroupSpec(name="work"))  # names belong to user groups


async def test_groups_are_listed_by_what_they_are(api: Api) -> None:
    async with api.client() as client:
        for number in range(5):
            spec = TaskGroupSpec(
                name=f"work-{number}",
                tags=frozenset({f"tag-{number % 2}"}),
                labels=frozenset({f"label-{number}"}),
            )
            await client.create_group(spec)
        await client.close_group("work-4")

        async def names(**which: Any) -> list[str]:
            return [group.name async for group in client.groups(**which)]

        assert await names() == [f"work-{number}" for number in (4, 3, 2, 1, 0)]
        assert await names(tag="tag-1") == ["work-3", "work-1"]
        assert await names(label="label-2") == ["work-2"]
        assert await names(name="work-3") == ["work-3"]
        assert await names(state=TaskGroupState.OPEN) == ["work-3", "work-2", "work-1", "work-0"]
        assert await names(settled=True) == []
    page = (await api.call("GET", "/task-groups?limit=2")).json()
    assert [item["name"] for item in page["items"]] == ["work-4", "work-3"]
    page = (await api.call("GET", f"/task-groups?limit=2&after={page['next']}")).json()
    assert [item["name"] for item in page["items"]] == ["work-2", "work-1"]
    for query, field in (("state=x", "state[0]"), ("limit=0", "limit"), ("colour=red", "colour")):
        answer = await api.call("GET", f"/task-groups?{query}")
        with problem(answer, 422, "invalid_request") as document:
            assert document["field"] == field
    for below in ("?after=nonsense", "?name=a%00", "?tag=%00", "/a%00b"):
        with problem(await api.call("GET", f"/task-groups{below}"), 422, "invalid_request"):
            pass


@pytest.mark.spec("S002-258", "S002-151")
async def test_a_change_is_kept_and_noticed(api: Api) -> None:
    async with api.client() as client:
        made = await client.create_group(TaskGroupSpec(name="work"))
        update = TaskGroupUpdate(
            priority=9, tags=frozenset({"a"}), expected_updated_at=made.updated_at
        )
        changed = await client.update_group("work", update)
        assert (changed.priority, changed.tags) == (9, ["a"])
        assert changed.updated_at > made.updated_at
        with pytest.raises(Conflict):
            await client.update_group("work", update)
        assert (await client.group("work")) == changed
    setup = {"environment_setup_hook": {"command": ["true"]}}
    answer = await api.call("PUT", "/task-groups/work", json=setup)
    with problem(answer, 422, "invalid_request") as document:  # as long as it lives
        assert document["field"] == "environment_setup_hook"


async def test_null_takes_a_limit_away_and_a_field_left_out_stays(api: Api) -> None:
    limits = {"auto_close_timeout": "1h", "max_managers": 3}
    made = await api.call("POST", "/task-groups", json={"name": "work", "priority": 5, **limits})

    async def after(**changes: Any) -> tuple[Any, Any]:
        answer = await api.call("PUT", "/task-groups/work", json=changes)
        assert answer.status_code == 200, answer.text
        assert answer.json()["priority"] == 5, "null is no priority"
        return answer.json()["auto_close_timeout"], answer.json()["max_managers"]

    assert await after(labels=["x"], priority=None) == (3600, 3)
    assert await after(auto_close_timeout=None) == (None, 3)
    assert await after(max_managers=None, auto_close_timeout=60) == (60, None)
    late = {"auto_close_timeout": None, "expected_updated_at": made.json()["updated_at"]}
    with problem(await api.call("PUT", "/task-groups/work", json=late), 409, "conflict"):
        pass
    async with api.client() as client:
        seen = await client.group("work")
        assert seen.auto_close_timeout == timedelta(seconds=60)
        late["expected_updated_at"] = seen.updated_at
        changed = await client.update_group("work", TaskGroupUpdate.model_validate(late))
        assert changed.auto_close_timeout is None


@pytest.mark.spec("S002-118", "S002-166", "S002-103", "S002-259")
async def test_verbs_work_without_temporal(api: Api) -> None:
    async with api.client() as client:
        await client.create_group(TaskGroupSpec(name="work"))
        await client.submit("work", [{"command": ["true"]}])
        closed = await client.close_group("work", reason="enough")
        assert (closed.state, closed.reason) == (TaskGroupState.CLOSED, "enough")
        assert (await client.close_group("work")).state is TaskGroupState.CLOSED  # ensures
        with pytest.raises(TaskGroupClosed):
            await client.submit("work", [{"command": ["true"]}])
        assert (await client.reopen("work")).state is TaskGroupState.OPEN
        assert await client.submit("work", [{"command": ["true"]}])
        cancelled = await client.cancel("work", grace=timedelta(seconds=3))
        assert cancelled.state is TaskGroupState.CANCELLED
        for verb in (client.close_group, client.reopen, client.complete):
            with pytest.raises(InvalidTransition) as refused:
                await verb("work")
            assert refused.value.facts["state"] == "cancelled"
            assert "close" not in refused.value.facts["allowed"]


async def test_verbs_take_no_body_null_and_an_object(api: Api) -> None:
    async with api.client() as client:
        for body in (b"", b"null", b"{}", b'{"reason":"r"}'):
            name = f"work-{len(body)}"
            await client.create_group(TaskGroupSpec(name=name))
            for method, verb in (("POST", "close"), ("PUT", "reopen"), ("POST", "cancel")):
                answer = await api.call(
                    method,
                    f"/task-groups/{name}/{verb}",
                    content=body,
                    headers={"Content-Type": "application/json"},
                )
                assert answer.status_code == 200, answer.text
    refused_body = await api.call("POST", "/task-groups/work-2/cancel", json={"grace_seconds": -1})
    with problem(refused_body, 422, "invalid_request") as document:
        assert document["field"] == "grace_seconds"


async def test_complete(api: Api) -> None:
    async with api.client() as client:
        await client.create_group(TaskGroupSpec(name="empty"))
        await client.complete("empty")
        await client.create_group(TaskGroupSpec(name="work"))
        await client.submit("work", [{"command": ["true"]}])
        forced = await client.complete("work", force=True)
        assert forced.state in (TaskGroupState.CLOSED, TaskGroupState.COMPLETE)


@pytest.mark.spec("S002-260")
async def test_only_a_settled_group_is_deleted(api: Api) -> None:
    async with api.client() as client:
        group = await client.create_group(TaskGroupSpec(name="work"))
        with pytest.raises(Conflict):
            await client.delete_group("work")
        await client.cancel("work")
        await ControlStore(api.app_state.store).settle(group.task_group_id)
        assert (await client.group("work")).settled
        await client.delete_group("work")
        with problem(await api.call("GET", "/task-groups/work"), 404, "not_found"):
            pass
