"""Tokens that are revoked or expire: calls that are held end too; and who may revoke whose."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

import api.held_calls
from api.auth import Subject
from api.issuing import issue_token
from mitosis.contracts.errors import NotFound, PermissionDenied, Unauthenticated
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.contracts.wire import ClaimTasks
from mitosis.contracts.worker_services import RegisterWorker
from mitosis.store.users.accounts import add_member, create_user
from mitosis.store.users.administration import get_user_info
from tests.support.http_api import Api, in_process_api
from tests.support.manager_api import ManagerApi
from tests.support.served_group import Served, served_group
from tests.support.waiting import wait_until_async

HOUR = timedelta(hours=1)


@pytest.fixture
async def served(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(api.held_calls, "LOOK_SECONDS", 0.05)
    async with served_group(database, Served) as it:
        yield it


@pytest.fixture
async def local(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


async def reader(served: Served, lifetime: timedelta = HOUR) -> str:
    """The token of a user who may read the group."""
    state = served.api.app_state
    user = await create_user(state.store, "ann")
    await add_member(state.store, "admin", "ann", "read")
    return state.signer.issue(Subject("user", user.user_id, 1), lifetime).token


async def follow(served: Served, token: str, path: str) -> httpx2.Response:
    """Follow until the API ends the answer; the reference is whole, since the group is another user's."""
    url = f"{served.api.url}/api/v1/task-groups/admin/work/{path}"
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        return await http.get(url, headers={"Authorization": f"Bearer {token}"})


async def held(served: Served, count: int) -> None:
    calls = served.api.app_state.long_polls.held._calls
    await wait_until_async(lambda: len(calls) == count, 20)


@pytest.mark.spec("S000-157")
@pytest.mark.parametrize("change", ["revoked", "locked", "role", "removed"])
async def test_streams_and_held_calls_end_with_their_permission(
    served: Served, change: str
) -> None:
    token = await reader(served)
    async with asyncio.timeout(20), asyncio.TaskGroup() as running:
        stream = running.create_task(follow(served, token, "events"))
        output = running.create_task(follow(served, token, "output"))
        poll = running.create_task(follow(served, token, "results?wait_seconds=20"))
        await held(served, 3)
        if change == "revoked":
            await served.client.revoke_tokens(username="ann")
        elif change == "locked":
            await served.client.lock_user("ann")
        elif change == "role":
            await add_member(served.api.app_state.store, "admin", "ann", "write")
        else:
            async with served.api.app_state.store.database.connection() as connection:
                await connection.execute(
                    "DELETE FROM user_group_members WHERE user_id ="
                    " (SELECT id FROM users WHERE username = 'ann')"
                    " AND user_group_id = (SELECT id FROM user_groups WHERE name = 'admin')"
                )
    assert (stream.result().status_code, output.result().status_code) == (200, 200)
    assert "event: end" not in stream.result().text
    assert poll.result().status_code == 401


@pytest.mark.spec("S000-156")
async def test_a_stream_ends_when_its_token_expires(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("auth", "held_calls"):
        monkeypatch.setattr(f"api.{module}.LEEWAY", timedelta(0))
    token = await reader(served, timedelta(seconds=2))
    async with asyncio.timeout(20):
        assert (await follow(served, token, "events")).status_code == 200
        assert (await follow(served, token, "events")).status_code == 401


async def test_a_host_whose_token_is_revoked_claims_nothing_more(served: Served) -> None:
    await served.client.submit("work", [{"command": ["true"]}])
    await served.lease()
    await served.run(1)
    claim = ClaimTasks(epoch=served.epoch, claim_seq=2, acked_seq=1, max_tasks=1, wait_seconds=20)
    async with asyncio.timeout(20):
        claiming = asyncio.create_task(served.manager.claim(claim))
        await held(served, 1)
        (host,) = [one async for one in served.client.managers()]
        await served.client.revoke_tokens(manager_id=host.manager_id)
        with pytest.raises(Unauthenticated):
            await claiming
    await served.client.submit("work", [{"command": ["true"]}])
    assert (await served.client.group("work")).tasks_running == 0
    token = await served.client.issue_manager_token(host.manager_id)
    async with ManagerApi(served.api.url, token.token) as again:
        assert (await again.claim(claim)).tasks


async def test_those_with_valid_tokens_are_listed_for_those_who_may_revoke_them(
    local: Api,
) -> None:
    async with local.client() as admin:
        await admin.add_user("ann")
        await admin.add_user("ben", groups={"ann": "write"})
        await admin.register_manager(RegisterManager(name="of-admin"))
    ann, ben = [await token_of(local, name) for name in ("ann", "ben")]
    async with local.client(ann) as client:
        mine = await client.register_manager(RegisterManager(name="of-ann"))
        await client.register_worker(RegisterWorker(worker_id="service"))
        found = [one async for one in client.token_holders()]
        assert [(one.kind, one.name) for one in found] == [
            ("manager", "of-ann"),
            ("user", "ann"),
            ("worker", "service"),
        ]
        assert found[0].valid_until == mine.expires_at
    async with local.client(ben) as client:
        assert [one.name async for one in client.token_holders()] == ["ben"]
        with pytest.raises(PermissionDenied):  # it sees the host
            await client.revoke_tokens(manager_id=mine.manager_id)
        with pytest.raises(PermissionDenied):
            await client.revoke_tokens(username="ann")
        await client.revoke_tokens(username="ben")
        with pytest.raises(Unauthenticated):
            await client.me()
    await create_user(local.app_state.store, "eve")
    async with local.client(await token_of(local, "eve")) as eve:
        for of in ({"manager_id": mine.manager_id}, {"worker_id": "service"}):
            with pytest.raises(NotFound):
                await eve.revoke_tokens(**of)
    async with local.client() as admin:
        await admin.revoke_tokens(worker_id="service")
        names = [one.name async for one in admin.token_holders()]
        assert names == ["of-admin", "of-ann", "admin", "ann", "eve"]
        first = await local.call("GET", "/tokens", params={"limit": 3})
        rest = await local.call("GET", "/tokens", params={"after": first.json()["next"]})
        assert [one["name"] for one in first.json()["items"] + rest.json()["items"]] == names


async def token_of(local: Api, name: str) -> str:
    """As a login gives it; a password costs time."""
    store = local.app_state.store
    found = (await get_user_info(store, name)).user_id
    return (await issue_token(local.app_state, Subject("user", found, 1), HOUR)).token


@pytest.mark.parametrize(
    "body", [{}, {"username": "a", "worker_id": "b"}, {"username": None}, {"manager_id": "x"}]
)
async def test_exactly_one_holder_is_named(local: Api, body: dict[str, Any]) -> None:
    answer = await local.call("POST", "/tokens/revoke", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_an_open_group_is_no_reason_to_end_what_others_hold(served: Served) -> None:
    """Only the calls of the revoked token end."""
    token = await reader(served)
    async with asyncio.timeout(20):
        kept = asyncio.create_task(follow(served, served.token, "results?wait_seconds=1"))
        ended = asyncio.create_task(follow(served, token, "results?wait_seconds=20"))
        await held(served, 2)
        await served.client.create_group(TaskGroupSpec(name="other"))
        await served.client.revoke_tokens(username="ann")
        assert (await ended).status_code == 401
        assert (await kept).status_code == 200
