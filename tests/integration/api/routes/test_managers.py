"""Verbs about hosts over HTTP: a setup is repeated, a quarantine ended; by whom, for which task groups."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.http import RegisterManager, TaskGroupSpec
from mitosis.store.leases.failures import record_failure
from mitosis.store.users.accounts import add_member
from tests.support.http_api import Api, in_process_api, problem


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as api:
        yield api


async def _failed_at(api: Api, kind: HostFailureKind, manager_id: UUID, *group_ids: UUID) -> None:
    async with api.app_state.store.database.transaction() as connection:
        for group_id in group_ids:
            cursor = await connection.execute(
                "SELECT m.id AS manager, g.id AS task_group FROM managers AS m, task_groups AS g"
                " WHERE m.uuid = %s AND g.uuid = %s",
                (manager_id, group_id),
            )
            row = await cursor.fetchone()
            assert row is not None
            if kind is HostFailureKind.QUARANTINED:  # the end of a judgement
                await connection.execute(
                    "INSERT INTO host_failures (group_id, manager_id, kind, phase, failures, reason,"
                    " incarnation, hook) VALUES (%s, %s, 'tasks_failed', 'quarantined', 5, 'exit code 3',"
                    " 0, md5(''))",
                    (row["task_group"], row["manager"]),
                )
                continue
            await record_failure(connection, row["manager"], row["task_group"], kind, "exit code 3")


@pytest.mark.parametrize(
    ("kind", "verb"),
    [
        (HostFailureKind.SETUP_FAILED, "retry-setup"),
        (HostFailureKind.QUARANTINED, "release-quarantine"),
    ],
)
async def test_a_user_ends_what_keeps_a_host_away(
    api: Api, kind: HostFailureKind, verb: str
) -> None:
    async with api.client() as client:
        groups = [
            (await client.create_group(TaskGroupSpec(name=name))).task_group_id for name in "ab"
        ]
        host = (await client.register_manager(RegisterManager(name="host-1"))).manager_id
        await _failed_at(api, kind, host, *groups)
        lift = client.retry_setup if verb == "retry-setup" else client.release_quarantine
        lines = [failure.line for failure in (await client.manager(host)).failures]
        assert len(lines) == 2
        assert f"mitosis manager {verb} host-1 --task-group a" in lines[0]
        assert await lift(host, "b") == ["b"]
        assert [failure.kind for failure in (await client.manager(host)).failures] == [kind]
        assert await lift(host) == ["a"]
        assert await lift(host) == []
        assert (await client.manager(host)).failures == []
        await _failed_at(api, kind, host, groups[0])
    ben, path = await api.user("ben"), f"/managers/{host}/{verb}"
    for body in ({}, {"task_group": str(groups[0])}):
        with problem(await api.call("POST", path, token=ben, json=body), 404, "not_found"):
            pass
    await add_member(api.app_state.store, "admin", "ben", "read")
    for body in ({}, {"task_group": str(groups[0])}):
        answer = await api.call("POST", path, token=ben, json=body)
        with problem(answer, 403, "permission_denied"):
            pass
    async with api.client() as client:
        assert len((await client.manager(host)).failures) == 1


VERBS = [
    ("POST", "/drain", {}, "write"),
    ("POST", "/resume", None, "write"),
    ("PUT", "", {"name": "other"}, "admin"),
    ("DELETE", "", None, "admin"),
]


@pytest.mark.parametrize(("method", "below", "body", "needed"), VERBS)
async def test_who_may_change_a_host(
    api: Api, method: str, below: str, body: object, needed: str
) -> None:
    async with api.client() as client:
        host = (await client.register_manager(RegisterManager(name="host-1"))).manager_id
    ben, path = await api.user("ben"), f"/managers/{host}{below}"
    how = {} if body is None else {"json": body}
    with problem(await api.call(method, path, token=ben, **how), 404, "not_found"):
        pass
    lower = "write" if needed == "admin" else "read"
    await add_member(api.app_state.store, "admin", "ben", lower)  # type: ignore[arg-type]
    refused = await api.call(method, path, token=ben, **how)
    assert (refused.status_code, refused.json()["needed"]) == (403, needed)
    await add_member(api.app_state.store, "admin", "ben", needed)  # type: ignore[arg-type]
    assert (await api.call(method, path, token=ben, **how)).status_code in (200, 204)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "two words"}, "name"),
        ({"name": "0194f7b0-0000-7000-8000-000000000000"}, "name"),
        ({"tags": ["a b"]}, "tags[0]"),
        ({"labels": [""]}, "labels[0]"),
        ({"draining": True}, "draining"),
    ],
)
async def test_a_wrong_change_of_a_host_names_the_field(
    api: Api, body: dict[str, object], field: str
) -> None:
    async with api.client() as client:
        host = (await client.register_manager(RegisterManager(name="host-1"))).manager_id
    answer = await api.call("PUT", f"/managers/{host}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
