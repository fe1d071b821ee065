"""Accounts over HTTP: a second person with her own group and role; passwords and locks end tokens."""

import logging
from collections.abc import AsyncIterator

import pytest

from mitosis.contracts.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from mitosis.contracts.http import TaskGroupSpec
from tests.support.http_api import Api, in_process_api, problem

OLD, NEW = "planted words 1", "planted words 2"


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


async def log_in(api: Api, name: str, password: str) -> str:
    async with api.client("none") as client:
        return (await client.login(name, password)).token


@pytest.mark.spec("S002-32")
async def test_a_second_person_sees_only_what_her_roles_allow(api: Api) -> None:
    async with api.client() as admin:
        await admin.add_user("ann", OLD)
        await admin.add_user("ben", OLD, groups={"ann": "read"})
        await admin.create_group(TaskGroupSpec(name="of-admin"))
        with pytest.raises(AlreadyExists):
            await admin.add_user("ann", OLD)
        with pytest.raises(NotFound, match="no such user group: nothing"):
            await admin.add_user("eve", OLD, groups={"nothing": "read"})
        assert [one.username async for one in admin.users()] == ["admin", "ann", "ben"]
    async with api.client(await log_in(api, "ann", OLD)) as ann:
        await ann.create_group(TaskGroupSpec(name="of-ann"))
        with pytest.raises(PermissionDenied):
            await ann.add_user("eve", OLD)
    async with api.client(await log_in(api, "ben", OLD)) as ben:
        assert (await ben.me()).groups == {"ann": "read", "ben": "admin"}
        assert [one.name async for one in ben.groups()] == ["of-ann"]
        with pytest.raises(PermissionDenied):
            await ben.close_group("ann/of-ann")
        await ben.create_group(TaskGroupSpec(name="of-ben"))
        with pytest.raises(NotFound):
            await ben.group("admin/of-admin")


async def test_a_new_password_ends_the_tokens_of_the_old_one(api: Api) -> None:
    async with api.client() as admin:
        await admin.add_user("ann", OLD)
    first = await log_in(api, "ann", OLD)
    async with api.client(first) as ann:
        with pytest.raises(Unauthenticated):
            await ann.change_password("ann", NEW, current_password="guess 123")
        with pytest.raises(PermissionDenied):
            await ann.change_password("admin", NEW, current_password=OLD)
        await ann.change_password("ann", NEW, current_password=OLD)
    with problem(await api.call("GET", "/me", token=first), 401, "unauthenticated"):
        pass
    with pytest.raises(Unauthenticated):
        await log_in(api, "ann", OLD)
    assert await log_in(api, "ann", NEW)


async def test_a_locked_user_is_out_and_comes_back_with_a_new_login(api: Api) -> None:
    async with api.client() as admin:
        await admin.add_user("ann", OLD)
        token = await log_in(api, "ann", OLD)
        for _ in range(2):
            assert (await admin.lock_user("ann")).state == "locked"
        with problem(await api.call("GET", "/me", token=token), 401, "unauthenticated"):
            pass
        with pytest.raises(Unauthenticated):
            await log_in(api, "ann", OLD)
        assert (await admin.unlock_user("ann")).state == "active"
        with problem(await api.call("GET", "/me", token=token), 401, "unauthenticated"):
            pass
        assert await log_in(api, "ann", OLD)
        answer = await api.call("POST", "/users/admin/lock")
        with problem(answer, 422, "invalid_request") as document:
            assert document["field"] == "username"
        with pytest.raises(NotFound):
            await admin.lock_user("nothing")
        await admin.add_user("eve", OLD, is_admin=True)
        async with api.client(await log_in(api, "eve", OLD)) as eve:
            with pytest.raises(InvalidRequest, match="no API would start"):
                await eve.lock_user("admin")


async def test_no_password_is_shown_or_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bad = "planted" * 200
    bodies = [
        ("POST", "/users", {"username": "ann", "password": bad}),
        ("POST", "/users", {"username": "a/b", "password": OLD}),
        ("POST", "/users", {"username": "ann", "password": ["planted"]}),
        ("POST", "/users", {"username": "ann", "password": "planted"}),
        ("POST", "/users", {"username": "ann", "password": OLD, "planted": 1}),
        ("PUT", "/users/admin/password", {"password": NEW, "current_password": bad}),
        ("PUT", "/users/nothing/password", {"password": NEW}),
        ("POST", "/login", {"username": "admin", "password": OLD}),
        ("POST", "/login", {"username": "admin", "password": [OLD]}),
    ]
    for method, path, body in bodies:
        answer = await api.call(method, path, json=body)
        assert 400 <= answer.status_code < 500, (path, answer.text)
        assert "planted" not in answer.text.replace('"field":"planted"', ""), answer.text
    assert "planted" not in caplog.text
