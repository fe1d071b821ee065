"""How long a user group keeps its settled task groups: who may set it, and what the next pass deletes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from mitosis.contracts.control import Cancel, VerbRequest
from mitosis.contracts.errors import InvalidRequest, NotFound, PermissionDenied
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.retention import RetentionTerms
from mitosis.store.control.control_store import ControlStore
from mitosis.store.retention.deletion import ExpiredRows
from mitosis.store.users.accounts import add_member
from tests.support.http_api import Api, in_process_api

DAY = timedelta(days=1)


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as running:
        yield running


async def settled_days_ago(api: Api, name: str, days: int) -> None:
    """A task group of the administrator that has settled."""
    control = ControlStore(api.app_state.store)
    async with api.client() as client:
        group = (await client.create_group(TaskGroupSpec(name=name))).task_group_id
    await control.apply(VerbRequest(task_group_id=group, verb=Cancel()))
    assert (await control.settle(group)).settled
    async with api.app_state.store.database.connection() as connection:
        await connection.execute(
            "UPDATE group_live SET settled_at = settled_at - make_interval(days => %s) FROM task_groups AS g"
            " WHERE g.id = group_id AND g.uuid = %s",
            [days, group],
        )


async def left(api: Api, terms: RetentionTerms) -> set[str]:
    """The task groups that a pass of the retention leaves."""
    async with api.app_state.store.database.connection() as connection:
        await connection.execute("UPDATE retention SET next_at = now(), seen_to = NULL")
    await ExpiredRows(replace(api.app_state.store, retention=terms)).delete()
    async with api.client() as client:
        return {group.name async for group in client.groups()}


@pytest.mark.spec("C-34")
async def test_settled_task_groups_are_kept_for_as_long_as_their_user_group_says(api: Api) -> None:
    await settled_days_ago(api, "older", 3)
    await settled_days_ago(api, "newer", 1)
    week, none = RetentionTerms(task_groups=7 * DAY), RetentionTerms()
    async with api.client() as client:
        assert await left(api, none) == {"older", "newer"}
        found = await client.keep_task_groups("admin", None, for_ever=True)
        assert (found.for_ever, found.keep_seconds) == (True, None)
        assert await left(api, RetentionTerms(task_groups=DAY / 2)) == {"older", "newer"}
        found = await client.keep_task_groups("admin", 2 * DAY)
        assert found == await client.kept_task_groups("admin")
        assert (found.for_ever, found.keep_seconds) == (False, 2 * 86_400)
        assert await left(api, week) == {"newer"}
        found = await client.keep_task_groups("admin", None)
        assert (found.for_ever, found.keep_seconds) == (False, None)
        assert await left(api, week) == {"newer"}
        assert await left(api, RetentionTerms(task_groups=DAY / 2)) == set()


async def test_only_its_admins_set_it(api: Api) -> None:
    async with api.client() as admin:
        for name in ("ann", "ben", "eve"):
            await admin.add_user(name, "secret words")
    await add_member(api.app_state.store, "ann", "ben", "write")
    tokens = {}
    for name in ("ann", "ben", "eve"):
        async with api.client(None) as person:
            tokens[name] = (await person.login(name, "secret words")).token
    async with api.client(tokens["ann"]) as ann:
        assert (await ann.keep_task_groups("ann", DAY)).keep_seconds == 86_400
        with pytest.raises(InvalidRequest, match="at least 1 hour"):
            await ann.keep_task_groups("ann", timedelta(minutes=59))
    async with api.client(tokens["ben"]) as ben:
        assert (await ben.kept_task_groups("ann")).keep_seconds == 86_400
        with pytest.raises(PermissionDenied):
            await ben.keep_task_groups("ann", None)
    async with api.client(tokens["eve"]) as eve:
        for call in (eve.kept_task_groups("ann"), eve.keep_task_groups("ann", None)):
            with pytest.raises(NotFound):
                await call
