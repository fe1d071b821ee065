"""Every route of the OpenAPI document for every kind of caller: who is refused how, who sees which values."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from api.app import create_app
from api.auth import Subject
from mitosis.contracts.control import Cancel, VerbRequest
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.store.control.control_store import ControlStore
from mitosis.store.users.accounts import add_member, create_user
from tests.support.http_api import Api, in_process_api
from tests.support.route_rules import (
    GROUP,
    HOST,
    JOB,
    KEPT,
    NAMED,
    RULES,
    RUN,
    SCHEDULE,
    TASK,
    TEMPLATE,
    WORKER,
)

VALUE, NAME = "planted-value-0451", "PLANTED_NAME"
HOOK = {"command": ["true"], "environment": {NAME: VALUE}}
SPEC = {
    "worker_allocation_plan": {"environment": {NAME: VALUE}},
    "environment_setup_hook": HOOK,
    "environment_teardown_hook": HOOK,
    "environment_probe": HOOK,
}
STEP = {"command": ["true"], "environment": {NAME: VALUE}}
JOB_FIELDS = {"name": "etl", "steps": {"one": STEP}}
BODIES = {
    f"PUT {GROUP}/tags": {"tags": []},
    f"POST {GROUP}/retry": {"idempotency_key": "k"},
    f"POST {GROUP}/cancel-tasks": {"filter": {}},
    f"POST {GROUP}/managers": {"manager_ids": []},
    f"DELETE {GROUP}/managers": {"manager_ids": []},
    f"PUT {HOST}": {"name": "renamed"},
    f"POST {TEMPLATE}/{{reference}}/create": {"name": "made"},
    f"POST {HOST}/retry-setup": {},
    f"POST {HOST}/release-quarantine": {},
    "POST /workers": {"worker_id": "other"},
    "POST /users": {"username": "new"},
    "PUT /users/{username}/password": {"password": "secret words"},
    f"PUT {KEPT}": {"keep": None},
    "POST /tokens/revoke": {"worker_id": "service"},
    f"POST {SCHEDULE}/backfill": {"first": "2026-01-01T00:00Z", "last": "2026-01-02T00:00Z"},
    "POST /workers/heartbeat": {"incarnation": 1},
    "POST /workers/goodbye": {"incarnation": 1},
}
"""What a caller without the role sends, so that only the role is in the way. {} for the others."""

PLACES: dict[str, object] = {
    "worker_id": "service",
    "username": "reader",
    "group_name": "ann",
    "namespace": "n",
    "name": "t",
    "version": "1",
    "step": "one",
}
DEAD = (
    "garbage",
    "expired user",
    "revoked user",
    "locked user",
    "unknown user",
    "expired manager",
    "revoked manager",
    "deleted manager",
    "expired worker",
    "revoked worker",
    "unknown worker",
)
SHOWS_ENVIRONMENTS = {
    "GET /task-groups",
    f"GET {GROUP}",
    f"GET {GROUP}/tasks",
    f"GET {GROUP}/results",
    f"GET {GROUP}/events",
    f"GET {GROUP}/output",
    f"GET {TASK}",
    f"GET {TASK}/output",
    f"GET {TEMPLATE}",
    f"GET {TEMPLATE}/{{reference}}",
    f"GET {JOB}",
    f"GET {RUN}/definition",
    f"GET {WORKER}",
    f"GET {NAMED}/workers",
    f"GET {NAMED}/available-worker",
}


@dataclass
class Scene:
    """A settled group of ann with a task and a template, her host, and tokens by the name of their holder."""

    api: Api
    tokens: dict[str, str | None] = field(default_factory=dict)
    places: dict[str, object] = field(default_factory=dict)

    async def call(self, route: str, holder: str, body: object = None) -> tuple[int, str]:
        method, path = route.split(" ", 1)
        path = path.replace("/task-group-templates/{reference}", "/task-group-templates/ann/saved")
        path = path.replace("/jobs/{reference}", "/jobs/ann/etl")
        path = path.replace("/schedules/{reference}", "/schedules/ann/etl")
        answer = await self.api.call(
            method,
            path.format(**self.places),
            token=self.tokens[holder],
            **({} if method == "GET" else {"json": {} if body is None else body}),
        )
        return answer.status_code, answer.text


@asynccontextmanager
async def scene(database: str) -> AsyncIterator[Scene]:
    async with in_process_api(database) as api:
        it, signer, hour = Scene(api), api.app_state.signer, timedelta(hours=1)
        for name in ("ann", "reader", "writer", "stranger", "locked user"):
            user = await create_user(api.app_state.store, name.replace(" ", "-"))
            it.tokens[name] = signer.issue(Subject("user", user.user_id, 1), hour).token
        await add_member(api.app_state.store, "ann", "reader", "read")
        await add_member(api.app_state.store, "ann", "writer", "write")
        ann = signer.read(str(it.tokens["ann"]))
        async with api.client(it.tokens["ann"]) as client:
            hosts = [
                await client.register_manager(RegisterManager(name=n)) for n in ("one", "gone")
            ]
            group = await client.create_group(
                TaskGroupSpec.model_validate({"name": "work", **SPEC})
            )
            await client.submit("work", [{"command": ["true"], "environment": {NAME: VALUE}}])
            await client.save_template("saved", task_group="work")
            await client.define_job(JOB_FIELDS)
            await client.create_schedule("etl", cron="@daily")
            started = await api.call("POST", "/runs", token=it.tokens["ann"], json={"job": "etl"})
            await client.delete_manager(hosts[1].manager_id)
            (task,) = [one async for one in client.tasks("work")]
        await settled(api, group.task_group_id)
        async with api.app_state.store.database.connection() as connection:
            await connection.execute(
                "UPDATE users SET state = 'locked' WHERE username = 'locked-user'"
            )
        api.app_state.store.users.clear()
        host = Subject("manager", hosts[0].manager_id, 1)
        worker = await register_service(it)
        service = Subject("worker", UUID(worker["worker_uuid"]), 1)
        it.places = PLACES | {
            "reference": group.task_group_id,
            "task_uuid": task.task_uuid,
            "manager_id": host.id,
            "task_group_id": group.task_group_id,
            "epoch": 1,
            "run_id": started.json()["run_id"],
        }
        it.tokens |= {
            "nobody": None,
            "manager": hosts[0].token,
            "garbage": "x.y.z",
            "expired user": signer.issue(ann, -hour).token,
            "revoked user": signer.issue(Subject("user", ann.id, 0), hour).token,
            "unknown user": signer.issue(Subject("user", uuid4(), 1), hour).token,
            "expired manager": signer.issue(host, -hour).token,
            "revoked manager": signer.issue(Subject("manager", host.id, 0), hour).token,
            "deleted manager": hosts[1].token,
            "worker": worker["token"],
            "expired worker": signer.issue(service, -hour).token,
            "revoked worker": signer.issue(Subject("worker", service.id, 0), hour).token,
            "unknown worker": signer.issue(Subject("worker", uuid4(), 1), hour).token,
        }
        yield it


async def register_service(it: Scene) -> dict[str, Any]:
    """A healthy worker service of ann, with a planted value in its configuration."""
    task = {"namespace": "n", "name": "t", "version": "1", "configuration": {NAME: VALUE}}
    body = {"worker_id": "service", "groups": ["ann"], "supported_tasks": [task]}
    made = await it.api.call("POST", "/workers", token=it.tokens["ann"], json=body)
    worker: dict[str, Any] = made.json()
    beat = {"incarnation": worker["incarnation"]}
    answer = await it.api.call("POST", "/workers/heartbeat", token=worker["token"], json=beat)
    assert answer.status_code == 200, answer.text
    return worker


async def settled(api: Api, group: UUID) -> None:
    control = ControlStore(api.app_state.store)
    await control.apply(VerbRequest(task_group_id=group, verb=Cancel()))
    await control.discard(group)
    assert (await control.settle(group)).settled


def routes() -> set[str]:
    return {
        f"{method.upper()} {path.removeprefix('/api/v1') if path.startswith('/api') else '/' + path}"
        for path, operations in create_app(None).openapi()["paths"].items()
        for method in operations
    }


def test_every_route_has_one_rule() -> None:
    named = [route for those in RULES.values() for route in those]
    assert sorted(named) == sorted(routes()), "say in RULES who may call a new route"


@pytest.mark.spec("S002-10", "S002-32")
async def test_each_caller_is_refused_for_what_is_wrong(database: str) -> None:
    """401: the token is no good for anything. 403: it is good, but not for this. 404: not to be seen."""
    wrong = []
    async with scene(database) as it:
        it.places["reference"] = await another_group(it)
        for rule, those in RULES.items():
            for route in those:
                refusals = dict.fromkeys((*DEAD, "nobody"), 401) if rule != "open" else {}
                refusals |= EXPECTED.get(rule, {})
                for holder, status in refusals.items():
                    found, text = await it.call(route + of_ann(route), holder, BODIES.get(route))
                    if found != status:
                        wrong.append(f"{route} by {holder}: {found}, not {status}: {text[:200]}")
    assert wrong == []


def of_ann(route: str) -> str:
    """The query that names her user group, where the caller's own is the default."""
    return "?group_name=ann" if NAMED in route else ""


async def another_group(it: Scene) -> UUID:
    """An open group, so that no state of it is in the way either."""
    async with it.api.client(it.tokens["ann"]) as client:
        return (await client.create_group(TaskGroupSpec(name="open"))).task_group_id


USER = {"manager": 403, "worker": 403}
READ = {**USER, "stranger": 404}
WRITE = {**READ, "reader": 403}
EXPECTED: dict[str, dict[str, int]] = {
    "user": USER,
    "user or worker": {"manager": 403},
    "read": READ,
    "write": WRITE,
    "write, body first": WRITE,
    "owner": {**WRITE, "writer": 403},
    "admin": {**WRITE, "writer": 403},
    "administrator": dict.fromkeys(("ann", "stranger", "writer", "manager", "worker"), 403),
    "manager": {"ann": 403, "stranger": 403, "worker": 403},
    "worker": {"ann": 403, "stranger": 403, "manager": 403},
}
"""Status by rule and caller, of those whose token is good and who are refused."""


async def test_who_only_reads_sees_the_names_of_environment_variables_and_no_value(
    database: str,
) -> None:
    async with scene(database) as it:
        for route in sorted(routes()):
            rule = next(rule for rule, those in RULES.items() if route in those)
            if not route.startswith("GET") or rule in ("manager", "worker", "administrator"):
                continue
            found, text = await it.call(route + of_ann(route), "reader")
            assert found in (200, 503), f"{route}: {text}"
            assert VALUE not in text, route
            assert (NAME in text) == (route in SHOWS_ENVIRONMENTS), route
            for holder in ("writer", "ann"):
                _, text = await it.call(route + of_ann(route), holder)
                assert (VALUE in text) == (route in SHOWS_ENVIRONMENTS), f"{route} by {holder}"


async def test_who_only_reads_cannot_copy_values_into_a_user_group_of_their_own(
    database: str,
) -> None:
    async with scene(database) as it:
        for route, body in (
            (f"POST {TEMPLATE}/{{reference}}/create", {"name": "mine", "group_name": "reader"}),
            (f"POST {TEMPLATE}", {"name": "mine", "task_group": "ann/work"}),
        ):
            status, text = await it.call(route, "reader", body)
            assert (status, '"needed":"write"' in text) == (403, True), text
            status, text = await it.call(route, "writer", {**body, "group_name": "writer"})
            assert status == 201, text
