"""Who may do what over HTTP: tokens, roles, the anonymous, managers and users apart."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from api.app import create_app
from api.auth import Subject, TokenSigner
from api.logins import NAME_BURST, NAME_EVERY, LoginLimit
from mitosis.contracts.errors import RateLimited, Unauthenticated
from mitosis.contracts.http import TaskGroupSpec
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.users.accounts import add_member, ensure_admin
from tests.support.http_api import Api, in_process_api, problem, said_hello

OPEN = {"/health", "/ready", "/openapi.json", "/api/v1/login"}


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


PLACES = defaultdict(uuid4, epoch=1, path="", version="1")
"""Values of what the paths of routes leave open."""


def routes(app: FastAPI) -> list[tuple[str, str]]:
    return [
        (method, route.path_format or "")
        for route in iter_route_contexts(app.routes)
        for method in sorted(route.methods or ())
        if method != "HEAD"
    ]


@pytest.mark.spec("S002-10")
async def test_nothing_is_open_to_the_anonymous(api: Api) -> None:
    closed = [(m, p) for m, p in routes(create_app(api.app_state)) if p not in OPEN]
    assert len(closed) > 25
    for method, path in closed:
        below = path.removeprefix("/api/v1") if path.startswith("/api") else "/" + path
        below = below.format_map(PLACES)
        assert path.startswith(("/api/v1", "/metrics", "/temporal/")), f"{path} is open"
        if path.startswith("/temporal/"):
            continue  # sessions of browsers: test_temporal_ui.py
        for token in (None, "x.y.z"):
            answer = await api.call(method, below, token=token, json={})
            assert answer.status_code == 401, f"{method} {path}: {answer.text}"
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_login_gives_a_token(api: Api) -> None:
    await api.user("ann")
    async with api.client("none") as client:
        with pytest.raises(Unauthenticated) as refused:
            await client.login("ann", "wrong")
        assert refused.value.facts["reason"] == "login_failed"
        token = await client.login("ann", "secret words")
        assert (await client.me()).username == "ann"
    answer = await api.call("GET", "/me", token=token.token)
    assert answer.json()["groups"] == {"ann": "admin"}


@pytest.mark.parametrize("case", ["missing", "garbage", "foreign", "expired", "unknown", "revoked"])
async def test_bad_tokens(api: Api, case: str) -> None:
    signer, hour = api.app_state.signer, timedelta(hours=1)
    admin = await ensure_admin(api.app_state.store, "admin")
    foreign = TokenSigner(ed25519_private_key())
    known = Subject("user", admin.user_id, admin.token_version)
    token = {
        "missing": None,
        "garbage": "x.y.z",
        "foreign": foreign.issue(known, hour).token,
        "expired": signer.issue(known, -hour).token,
        "unknown": signer.issue(Subject("user", uuid4(), 1), hour).token,
        "revoked": signer.issue(Subject("user", admin.user_id, 0), hour).token,
    }[case]
    answer = await api.call("GET", "/me", token=token)
    with problem(answer, 401, "unauthenticated") as document:
        reason = {"missing": "token_missing", "expired": "token_expired"}
        assert document["reason"] == reason.get(case, "token_invalid")
        assert token is None or token not in answer.text


async def test_failed_logins_are_limited_by_name_and_address(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = LoginLimit(lambda: 0.0)  # no guess is won back, however long these take
    monkeypatch.setattr(api.app_state.logins, "by_name", stopped.by_name)
    await api.user("ann")
    async with api.client() as client:
        guesses = [client.login("ann", f"guess {n}") for n in range(NAME_BURST + 3)]
        ends = await asyncio.gather(*guesses, return_exceptions=True)
        assert [type(end) for end in ends].count(Unauthenticated) == NAME_BURST
        with pytest.raises(RateLimited) as refused:  # the right word, too late
            await client.login("ann", "secret words")
        assert 0 < refused.value.facts["retry_after_seconds"] <= NAME_EVERY.total_seconds()
        await api.user("ben")
        for _ in range(NAME_BURST + 1):  # another name is not concerned, and successes do not count
            await client.login("ben", "secret words")
    answer = await api.call("POST", "/login", json={"username": "ann", "password": "x"}, token=None)
    with problem(answer, 429, "rate_limited") as document:
        assert answer.headers["retry-after"] == str(document["retry_after_seconds"])


async def test_users_and_managers_are_kept_apart(api: Api) -> None:
    async with said_hello(api) as (manager, _):
        token = manager.token
        with problem(await api.call("GET", "/me", token=token), 403, "permission_denied"):
            pass
        with problem(await api.call("GET", "/task-groups", token=token), 403, "permission_denied"):
            pass
    claim = {"epoch": 1, "claim_seq": 1, "acked_seq": 0, "max_tasks": 1}
    answer = await api.call("POST", "/managers/tasks/claim", json=claim)
    with problem(answer, 403, "permission_denied"):
        pass


@pytest.mark.spec("S002-32")
async def test_roles_decide(api: Api) -> None:
    async with api.client(await api.user("ann")) as ann:
        group = await ann.create_group(TaskGroupSpec(name="work"))
    ben = await api.user("ben")
    path = f"/task-groups/{group.task_group_id}"
    tasks = {"tasks": [{"command": ["true"]}]}
    for method, below in (("GET", ""), ("GET", "/tasks"), ("POST", "/close"), ("DELETE", "")):
        with problem(await api.call(method, path + below, token=ben), 404, "not_found"):
            pass
    await add_member(api.app_state.store, "ann", "ben", "read")
    api.app_state.store.users.clear()
    assert (await api.call("GET", path, token=ben)).status_code == 200
    assert (await api.call("GET", "/task-groups/ann/work", token=ben)).status_code == 200
    assert (await api.call("GET", path + "/tasks", token=ben)).status_code == 200
    for method, below, body in (
        ("POST", "/tasks", tasks),
        ("POST", "/close", None),
        ("PUT", "/reopen", None),
        ("POST", "/cancel", None),
        ("POST", "/complete", None),
        ("PUT", "", {"priority": 1}),
        ("DELETE", "", None),
    ):
        answer = await api.call(method, path + below, token=ben, json=body)
        with problem(answer, 403, "permission_denied") as document:
            assert document["needed"] == "write"
    foreign = {"name": "x", "group_name": "ann"}
    answer = await api.call("POST", "/task-groups", token=ben, json=foreign)
    with problem(answer, 403, "permission_denied"):
        pass
    await add_member(api.app_state.store, "ann", "ben", "write")
    assert (await api.call("POST", path + "/tasks", token=ben, json=tasks)).status_code == 201
    assert (await api.call("GET", path)).status_code == 200  # the admin sees everything


@pytest.mark.spec("S002-262")
async def test_a_group_has_three_addresses(api: Api) -> None:
    ann = await api.user("ann")
    async with api.client(ann) as client:
        group = await client.create_group(TaskGroupSpec(name="work"))
        for address in (group.task_group_id, "ann/work", "work"):
            found = await client.group(address)
            assert found.task_group_id == group.task_group_id
            assert await client.submit(address, [{"command": ["true"]}])
    for address in ("work", "ann/other", "nobody/work", "a/b/c", str(uuid4())):
        answer = await api.call("GET", f"/task-groups/{address}")
        with problem(answer, 404, "not_found"):
            pass


async def test_a_task_is_seen_by_those_who_see_its_group(api: Api) -> None:
    ann, ben = await api.user("ann"), await api.user("ben")
    async with api.client(ann) as client:
        await client.create_group(TaskGroupSpec(name="work"))
        await client.submit("work", [{"command": ["true"]}])
        (task,) = [item async for item in client.tasks("work")]
        assert (await client.task(task.task_uuid)).spec["command"] == ["true"]
    with problem(await api.call("GET", f"/tasks/{task.task_uuid}", token=ben), 404, "not_found"):
        pass
    with problem(await api.call("GET", f"/tasks/{uuid4()}"), 404, "not_found"):
        pass
    with problem(await api.call("GET", f"/tasks/{UUID(int=8 << 76)}"), 404, "not_found"):
        pass


def calls_about(name: str) -> list[tuple[str, str, Any]]:
    """Calls that name a user group, by one who has no role in it."""
    task = {"namespace": "images", "name": "resize", "version": "1"}
    worker = {"worker_id": "w", "supported_tasks": [task], "groups": [name]}
    job = {"name": "j", "group_name": name, "steps": {"a": {"command": ["true"]}}}
    return [
        ("POST", "/managers", {"groups": [name]}),
        ("POST", "/managers", {"groups": [f"{name}:read"]}),
        ("POST", "/workers", worker),
        ("GET", f"/user-groups/{name}/retention", None),
        ("PUT", f"/user-groups/{name}/retention", {"keep": None}),
        ("POST", "/task-groups", {"name": "g", "group_name": name}),
        ("POST", "/jobs", {"definition": job, "group_name": name}),
        ("GET", f"/named-tasks/images/resize/1/workers?group_name={name}", None),
    ]


@pytest.mark.spec("S002-10")
async def test_a_stranger_does_not_see_whether_a_user_group_exists(api: Api) -> None:
    await api.user("ann")
    dave = await api.user("dave")
    for there, nowhere in zip(calls_about("ann"), calls_about("noe"), strict=True):
        answers = []
        for name, (method, path, body) in (("ann", there), ("noe", nowhere)):
            answer = await api.call(method, path, token=dave, json=body)
            answers.append((answer.status_code, answer.text.replace(name, "NAME")))
        assert answers[0] == answers[1], there
        assert answers[0][0] in (403, 404), there
