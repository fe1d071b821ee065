"""Accounts, groups and roles in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from mitosis.contracts.errors import AlreadyExists, InvalidRequest, NotFound, Unauthenticated
from mitosis.store.pg.database import Database
from mitosis.store.store import Store
from mitosis.store.users.accounts import (
    add_member,
    create_user,
    ensure_admin,
    find_user,
    role_in_group,
    role_in_task_group,
    verify_password,
)


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with Database.open(database) as opened:
        yield Store(database=opened)


async def test_the_admin_is_made_once_by_any_number_of_processes(store: Store) -> None:
    made = await asyncio.gather(*(ensure_admin(store, "admin") for _ in range(5)))
    assert len({admin.user_id for admin in made}) == 1
    assert made[0].is_admin
    assert made[0].groups == {"admin": "admin"}
    with pytest.raises(Unauthenticated):
        await verify_password(store, "admin", "")


async def test_a_user_has_a_group_of_their_own(store: Store) -> None:
    ann = await create_user(store, "ann", "secret")
    assert (await verify_password(store, "ann", "secret")).user_id == ann.user_id
    assert ann.groups == {"ann": "admin"}
    assert await find_user(store, ann.user_id) == ann
    assert await find_user(store, uuid4()) is None
    for name, password in (("ann", "wrong"), ("ben", "secret"), ("ann", "")):
        with pytest.raises(Unauthenticated):
            await verify_password(store, name, password)


@pytest.mark.spec("S000-76")
async def test_who_may_do_what_outlives_every_process(store: Store, database: str) -> None:
    """Read anew from tables that PostgreSQL writes to its log, so that a crash loses nothing of them."""
    await create_user(store, "ann")
    ben = await create_user(store, "ben")
    await add_member(store, "ann", "ben", "write")
    async with Database.open(database, pool_size=1) as later:
        assert await role_in_group(Store(database=later), ben.user_id, "ann") == "write"
        async with later.connection() as connection:
            cursor = await connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relkind = 'r' AND relpersistence <> 'p'"
            )
            passing = {row["relname"] for row in await cursor.fetchall()}
        assert passing == {"output_followers", "task_output"}, "what is read while a task runs"


async def test_names_are_unique_and_plain(store: Store) -> None:
    await create_user(store, "ann")
    with pytest.raises(AlreadyExists):
        await create_user(store, "ann")
    for name in ("", "-", "a b", "ä", "a\0", "x" * 101):
        with pytest.raises(InvalidRequest) as refused:
            await create_user(store, name)
        assert refused.value.facts["field"] == "username"


async def test_roles(store: Store) -> None:
    admin = await ensure_admin(store, "admin")
    ann, ben = await create_user(store, "ann"), await create_user(store, "ben")
    assert await role_in_group(store, ann.user_id, "ann") == "admin"
    assert await role_in_group(store, ben.user_id, "ann") is None
    assert await role_in_group(store, admin.user_id, "ann") == "admin"
    assert (await find_user(store, ben.user_id)) is not None
    await add_member(store, "ann", "ben", "read")
    await add_member(store, "ann", "ben", "write")
    assert await role_in_group(store, ben.user_id, "ann") == "write"
    seen = await find_user(store, ben.user_id)
    assert seen is not None
    assert seen.groups == {"ben": "admin", "ann": "write"}
    with pytest.raises(NotFound):
        await add_member(store, "nobody", "ben", "read")
    with pytest.raises(NotFound):
        await role_in_group(store, ann.user_id, "nobody")
    with pytest.raises(NotFound):
        await role_in_task_group(store, ann.user_id, uuid4())
