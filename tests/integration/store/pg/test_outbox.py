"""The outbox, the listeners, and the pool: messages survive, connections come back."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from mitosis.contracts.errors import DatabaseUnavailable
from mitosis.store.groups.events import wait_for_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.hello import say_goodbye
from mitosis.store.pg import database as pg
from mitosis.store.pg.database import Database
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.wake import Topic, Wake
from tests.support.campaigns import world
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.new_sessions


async def test_a_poke_is_hidden_while_it_is_sent_and_gone_when_it_was(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        (first,) = await w.control.take_pokes(10)
        assert (first.kind, first.subject) == ("task_group", group)
        assert await w.control.take_pokes(10) == [], "hidden from other relays"
        await w.rows("UPDATE outbox SET due_at = now()")
        (again,) = await w.control.take_pokes(10)
        assert again == first, "a relay that died leaves it for the next one"
        delay = await w.value("SELECT extract(epoch FROM due_at - now()) FROM outbox")
        assert 3 < delay <= 4
        await w.rows("UPDATE outbox SET due_at = now(), attempts = 50")
        await w.control.take_pokes(10)
        assert await w.value("SELECT extract(epoch FROM due_at - now()) FROM outbox") <= 60
        await w.control.delete_pokes([first.id])
        await w.control.delete_pokes([])
        assert await w.value("SELECT count(*) FROM outbox") == 0


async def test_a_row_of_a_kind_of_a_later_version_is_left_to_it(database: str) -> None:
    async with world(database) as w:
        await w.rows(
            "ALTER TABLE outbox DROP CONSTRAINT outbox_kind_check, DROP CONSTRAINT outbox_check"
        )
        await w.rows("INSERT INTO outbox (kind, subject) VALUES ('later', gen_random_uuid())")
        group = await w.group()
        assert [item.subject for item in await w.control.take_pokes(10)] == [group]
        await w.rows("UPDATE outbox SET due_at = now() WHERE kind = 'task_group'")
        assert await w.value("SELECT attempts FROM outbox WHERE kind = 'later'") == 0
        assert [item.subject for item in await w.control.take_pokes(10)] == [group]


async def test_relays_share_the_work_and_the_oldest_goes_first(database: str) -> None:
    async with world(database) as w:
        groups = [await w.group(f"g{i}") for i in range(20)]
        assert [item.subject for item in await w.control.take_pokes(5)] == groups[:5]
        taken = await asyncio.gather(*(w.control.take_pokes(5) for _ in range(5)))
        subjects = [item.subject for batch in taken for item in batch]
        assert sorted(map(str, subjects)) == sorted(map(str, groups[5:]))


async def test_a_poke_of_a_transaction_that_fails_is_never_sent(database: str) -> None:
    async with world(database) as w:

        async def fail() -> None:
            async with w.database.transaction() as connection:
                await poke(connection, managers=[w.user_id], scheduler=True)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await w.control.take_pokes(10) == []
        async with w.database.transaction() as connection:
            await poke(connection)
            await poke(connection, groups=[w.user_id], scheduler=True)
        assert {item.kind for item in await w.control.take_pokes(10)} == {"task_group", "scheduler"}


async def test_a_listener_hears_of_a_commit_and_of_its_lost_connection(database: str) -> None:
    async with world(database) as w, w.control.listen_for_pokes() as listener:
        assert await listener.wait(0.05) is False
        await w.group()
        assert await listener.wait(10) is True
        await w.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query = 'LISTEN mitosis_outbox'"
        )
        with pytest.raises(DatabaseUnavailable):
            await listener.wait(10)


@pytest.mark.spec("S000-144")
async def test_expected_names_who_must_have_a_workflow(database: str) -> None:
    async with world(database) as w:
        assert (await w.control.expected()).task_groups == ()
        group, done = await w.group(), await w.group("done")
        await w.cancel(done)
        await w.control.settle(done)
        idle, busy = await w.host(), await w.host()
        await w.submit(group, 1)
        await assign_round(w.store)
        expected = await w.control.expected()
        assert (expected.task_groups, expected.managers) == ((group,), (idle.manager_id,))
        await idle.take(group)
        await say_goodbye(w.store, idle.manager_id, idle.epoch)
        assert (await w.control.expected()).managers == (idle.manager_id,), "its environment"
        await idle.environment(group, "tear_down")
        await idle.environment(group, "cleaned")
        assert (await w.control.expected()).managers == ()
        assert busy.manager_id != idle.manager_id


async def test_waiters_are_woken_by_topic_and_all_of_them_after_a_lost_connection(
    database: str,
) -> None:
    async with Database.open(database) as db, Wake.listen(db) as wake:
        with wake.waiter(1, Topic.WORK) as work, wake.waiter(1, Topic.CHANGED) as changed:
            assert await work.wait(20), "once after the connection was made"
            assert await changed.wait(20)
            async with db.connection() as connection:
                await connection.execute("SELECT pg_notify('mitosis_wake', '1')")
                assert await work.wait(20)
                assert not await changed.wait(0.01)
                await connection.execute("SELECT pg_notify('mitosis_wake', '1!')")
                assert await changed.wait(20)
                await connection.execute("SELECT pg_notify('mitosis_wake', 'nonsense')")
                await connection.execute("SELECT pg_notify('mitosis_wake', '2')")
                assert not await work.wait(0.01)
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND query = 'LISTEN mitosis_wake'"
                )
                assert await work.wait(20)
                assert await changed.wait(20)
                await connection.execute("SELECT pg_notify('mitosis_wake', '1')")
                assert await work.wait(20), "and it listens again"
        assert wake.waiting == 0


async def test_the_pool_comes_back_after_its_connections_were_ended(database: str) -> None:
    async with Database.open(database, pool_size=2) as db:
        await db.check()
        with psycopg.connect(database, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

        async def works() -> bool:
            try:
                await db.check()
            except DatabaseUnavailable:
                return False
            return True

        await wait_until_async(works)


async def test_limits_hold_for_every_session_and_not_behind_a_pooler(database: str) -> None:
    async with Database.open(database) as db, db.connection() as connection:
        row = await (
            await connection.execute(
                "SELECT current_setting('statement_timeout') AS statement,"
                " current_setting('lock_timeout') AS lock,"
                " current_setting('idle_in_transaction_session_timeout') AS idle"
            )
        ).fetchone()
        assert row == {"statement": "15s", "lock": "3s", "idle": "10s"}
    pooled = f"{database}&pgbouncer=1"
    async with Database.open(pooled) as db, db.connection() as connection:
        for _ in range(10):
            await connection.execute("SELECT %s::int", [1])
        cursor = await connection.execute("SELECT count(*) AS n FROM pg_prepared_statements")
        assert await cursor.fetchone() == {"n": 0}


async def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg, "ACQUIRE_SECONDS", 0.5)
    monkeypatch.setattr(pg, "CONNECT_SECONDS", 1)
    with pytest.raises(DatabaseUnavailable):
        async with Database.open("postgresql://u@127.0.0.1:9/nothing"):
            pass


async def test_a_watch_without_a_listener_only_looks(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        info = await wait_for_group(w.on(w.database).store, group, "settled", timedelta(seconds=60))
        assert not info.settled
