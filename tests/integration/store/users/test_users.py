"""Accounts, groups and roles in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from mitosis.contracts.errors import AlreadyExists, InvalidRequest, NotFound, Unauthenticated
from mitosis.store.pg.database import Database
from mitosis.store.store import Store
from mitosis.store.users.users import UserStore


@pytest.fixture
async def users(database: str) -> AsyncIterator[UserStore]:
    async with Database.open(database) as opened:
        yield UserStore(Store(database=opened))


async def test_the_admin_is_made_once_by_any_number_of_processes(users: UserStore) -> None:
    made = await asyncio.gather(*(users.ensure_admin("admin") for _ in range(5)))
    assert len({admin.user_id for admin in made}) == 1
    assert made[0].is_admin
    assert made[0].groups == {"admin": "admin"}
    with pytest.raises(Unauthenticated):
        await users.verify_password("admin", "")


async def test_a_user_has_a_group_of_their_own(users: UserStore) -> None:
    ann = await users.create("ann", "secret")
    assert (await users.verify_password("ann", "secret")).user_id == ann.user_id
    assert ann.groups == {"ann": "admin"}
    assert await users.get(ann.user_id) == ann
    assert await users.get(uuid4()) is None
    for name, password in (("ann", "wrong"), ("ben", "secret"), ("ann", "")):
        with pytest.raises(Unauthenticated):
            await users.verify_password(name, password)


@pytest.mark.spec("S000-76")
async def test_who_may_do_what_outlives_every_process(users: UserStore, database: str) -> None:
    """Read anew from tables that PostgreSQL writes to its log, so that a crash loses nothing of them."""
    await users.create("ann")
    ben = await users.create("ben")
    await users.add_member("ann", "ben", "write")
    async with Database.open(database, pool_size=1) as later:
        assert await UserStore(Store(database=later)).role_in_group(ben.user_id, "ann") == "write"
        async with later.connection() as connection:
            cursor = await connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relkind = 'r' AND relpersistence <> 'p'"
            )
            passing = {row["relname"] for row in await cursor.fetchall()}
        assert passing == {"output_followers", "task_output"}, "what is read while a task runs"


async def test_names_are_unique_and_plain(users: UserStore) -> None:
    await users.create("ann")
    with pytest.raises(AlreadyExists):
        await users.create("ann")
    for name in ("", "-", "a b", "ä", "a\0", "x" * 101):
        with pytest.raises(InvalidRequest) as refused:
            await users.create(name)
        assert refused.value.facts["field"] == "username"


async def test_roles(users: UserStore) -> None:
    admin = await users.ensure_admin("admin")
    ann, ben = await users.create("ann"), await users.create("ben")
    assert await users.role_in_group(ann.user_id, "ann") == "admin"
    assert await users.role_in_group(ben.user_id, "ann") is None
    assert await users.role_in_group(admin.user_id, "ann") == "admin"
    assert (await users.get(ben.user_id)) is not None
    await users.add_member("ann", "ben", "read")
    await users.add_member("ann", "ben", "write")
    assert await users.role_in_group(ben.user_id, "ann") == "write"
    seen = await users.get(ben.user_id)
    assert seen is not None
    assert seen.groups == {"ben": "admin", "ann": "write"}
    with pytest.raises(NotFound):
        await users.add_member("nobody", "ben", "read")
    with pytest.raises(NotFound):
        await users.role_in_group(ann.user_id, "nobody")
    with pytest.raises(NotFound):
        await users.role_in_task_group(ann.user_id, uuid4())
