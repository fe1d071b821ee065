"""Templates of task groups over HTTP: saved, listed, used with other values, deleted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mitosis.contracts.errors import AlreadyExists, InvalidRequest, NotFound
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.users.accounts import add_member
from tests.support.http_api import Api, hello, in_process_api

SPEC: dict[str, Any] = {
    "tags": ["gpu"],
    "priority": 7,
    "worker_allocation_plan": {"worker_count": 3, "max_tasks_per_worker": 100},
    "environment_setup_hook": {"command": ["true"]},
    "auto_close_timeout": "30m",
    "max_managers": 2,
}


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


@pytest.mark.spec("S000-121", "S000-122")
async def test_a_task_group_is_made_of_a_template_with_other_values(api: Api) -> None:
    async with api.client() as client:
        saved = await client.save_template("nightly", SPEC)
        assert (saved.group_name, saved.created_by) == ("admin", "admin")
        assert saved.spec.keys() == SPEC.keys(), "only what was given"
        overrides = {
            "priority": 9,
            "worker_allocation_plan": {"worker_count": 1},
            "max_managers": None,
            "tags": [],
        }
        made = await client.create_from_template("nightly", "tonight", overrides)
        assert (made.name, made.group_name, made.priority) == ("tonight", "admin", 9)
        plan = made.worker_allocation_plan
        assert (plan.worker_count, plan.max_tasks_per_worker) == (1, 100), "merged field by field"
        assert (made.max_managers, made.tags) == (None, [])
        assert made.environment_setup_hook is not None
        assert made.auto_close_timeout is not None
        assert made.auto_close_timeout.total_seconds() == 1800
        with pytest.raises(AlreadyExists):
            await client.create_from_template("nightly", "tonight")
        plain = await client.create_from_template(saved.template_id, "plain")
        assert (plain.priority, plain.max_managers) == (7, 2)
        registered = await client.register_manager(RegisterManager(name="host-1"))
        await client.submit("tonight", [{"command": ["true"]}])
    async with api.manager(registered.token) as manager:
        await manager.hello(hello())
        await assign_round(api.app_state.store)
    async with api.client() as client:
        (lease,) = (await client.group("tonight")).leases
        assert lease.manager_id == registered.manager_id, "it works as any other"


async def test_a_template_is_saved_from_a_task_group(api: Api) -> None:
    async with api.client() as client:
        host = await client.register_manager(RegisterManager(name="host-1"))
        values = {
            "assignment_method": "user_specified",
            "manager_ids": [host.manager_id],
            "priority": 4,
        }
        await client.create_group(TaskGroupSpec.model_validate({"name": "work", **values}))
        saved = await client.save_template("copied", task_group="work")
        assert saved.spec["manager_ids"] == [str(host.manager_id)]
        again = await client.create_from_template("copied", "again")
        assert (again.priority, again.assignment_method) == (4, "user_specified")
        (listed,) = await client.group_managers("again")
        assert listed.manager_id == host.manager_id


async def test_templates_are_listed_replaced_and_deleted(api: Api) -> None:
    async with api.client() as client:
        for name in ("b", "a", "c"):
            await client.save_template(name, {"priority": 1})
        assert [one.name async for one in client.templates()] == ["a", "b", "c"]
        page = (await api.call("GET", "/task-group-templates?limit=2")).json()
        rest = await api.call("GET", f"/task-group-templates?after={page['next']}")
        assert [one["name"] for one in (*page["items"], *rest.json()["items"])] == ["a", "b", "c"]
        with pytest.raises(AlreadyExists):
            await client.save_template("a", {})
        replaced = await client.save_template("a", {"priority": 2}, replace=True)
        assert (await client.template("admin/a")) == replaced
        assert replaced.spec == {"priority": 2}
        await client.create_from_template("a", "kept")
        await client.delete_template("a")
        with pytest.raises(NotFound):
            await client.template("a")
        assert (await client.group("kept")).priority == 2


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"priority": "high"}, "spec.priority"),
        (
            {"worker_allocation_plan": {"worker_count": 0}},
            "spec.worker_allocation_plan.worker_count",
        ),
        ({"wrong": 1}, "spec.wrong"),
        ({"name": "x"}, "spec.name"),
        ({"close_deadline": "2030-01-01T00:00:00Z"}, "spec.close_deadline"),
    ],
)
async def test_a_wrong_template_names_the_field(api: Api, spec: dict[str, Any], field: str) -> None:
    async with api.client() as client:
        with pytest.raises(InvalidRequest) as refused:
            await client.save_template("t", spec)
        assert refused.value.facts["field"] == field


async def test_a_wrong_override_names_the_field(api: Api) -> None:
    async with api.client() as client:
        await client.save_template("t", {"environment_setup_hook": {"command": ["true"]}})
        for overrides, field in (
            ({"priority": "high"}, "overrides.priority"),
            (
                {"environment_setup_hook": {"command": []}},
                "overrides.environment_setup_hook.command",
            ),
            ({"name": "x"}, "overrides.name"),
        ):
            with pytest.raises(InvalidRequest) as refused:
                await client.create_from_template("t", "x", overrides)
            assert refused.value.facts["field"] == field
        async with api.app_state.store.database.connection() as connection:
            await connection.execute("""UPDATE task_group_templates SET spec = '{"old": 1}'""")
        with pytest.raises(InvalidRequest, match="template is not valid any more"):
            await client.create_from_template("t", "x")


async def test_templates_are_of_a_user_group(api: Api) -> None:
    ann, ben, eve = [await api.user(name) for name in ("ann", "ben", "eve")]
    await add_member(api.app_state.store, "ann", "ben", "read")
    async with api.client(ann) as hers, api.client(ben) as his, api.client(eve) as others:
        await hers.save_template("t", {"priority": 3})
        assert [one.name async for one in his.templates()] == ["t"]
        assert [one async for one in others.templates()] == []
        with pytest.raises(NotFound):
            await others.template("ann/t")
        made = await his.create_from_template("ann/t", "mine", group_name="ben")
        assert (made.group_name, made.priority) == ("ben", 3)
    path = "/task-group-templates/ann/t"
    for method, below, body in (
        ("POST", "/create", {"name": "hers"}),
        ("DELETE", "", None),
    ):
        how: dict[str, Any] = {} if body is None else {"json": body}
        refused = await api.call(method, path + below, token=ben, **how)
        assert (refused.status_code, refused.json()["needed"]) == (403, "write")
    template: dict[str, Any] = {"name": "u", "group_name": "ann", "spec": {}}
    saved = await api.call("POST", "/task-group-templates", token=ben, json=template)
    assert saved.status_code == 403
