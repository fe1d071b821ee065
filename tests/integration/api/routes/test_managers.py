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
