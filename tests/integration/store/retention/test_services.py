"""Worker services that never return leave no row for ever (C-34); one that does return registers again."""

import asyncio
from uuid import UUID

import pytest

from mitosis.contracts.errors import AlreadyExists, Unauthenticated, WorkerNotFound
from mitosis.contracts.wire import ReportStatus
from mitosis.contracts.worker_services import RegisterWorker
from mitosis.store.groups.deletion import delete_group
from mitosis.store.retention.deletion import DELETE_SERVICES, add_kinds, delete_expired_chunk
from mitosis.store.services.contact import drain_worker
from mitosis.store.services.registration import (
    register_again,
    register_worker,
    worker_token_version,
)
from mitosis.store.tasks.views import read_task
from mitosis.store.users.accounts import create_user
from tests.support.aging import delete_expired, time_passes
from tests.support.campaigns import World, held, until_blocked, world
from tests.support.worker_services import Service, healthy, service_group, submit_named, task

OF_SERVICES = (
    "worker_services",
    "worker_registrations",
    "worker_named_tasks",
    "user_group_workers",
    "group_services",
)


async def names(w: World) -> list[str]:
    rows = await w.rows("SELECT worker_id FROM worker_services ORDER BY worker_id")
    return [row["worker_id"] for row in rows]


async def rows_left(w: World) -> int:
    """In all tables of services."""
    left = 0
    for table in OF_SERVICES:
        left += await w.value(f"SELECT count(*) FROM {table}")  # noqa: S608 - its name
    return left


async def gone(w: World, worker_id: str = "one", **facts: object) -> Service:
    """A service that said goodbye 31 days ago."""
    service = await healthy(w, worker_id, **facts)
    await service.goodbye()
    await time_passes(w, 31)
    return service


async def settled(w: World, group: UUID) -> None:
    await w.close(group)
    await w.control.finalize(group)
    assert (await w.control.settle(group)).settled


@pytest.mark.spec("C-34")
async def test_a_service_that_is_gone_leaves_nothing_and_its_id_is_free(database: str) -> None:
    async with world(database) as w:
        service = await healthy(w, "one", task(), task("crop"))
        await service.goodbye()
        await time_passes(w, 29)
        await delete_expired(w)
        other = (await create_user(w.store, "bob")).user_id
        taken = RegisterWorker(worker_id="one")
        with pytest.raises(AlreadyExists):
            await register_worker(w.store, taken, other)
        await time_passes(w, 2)
        await delete_expired(w)
        assert await rows_left(w) == 0
        made = await register_worker(w.store, taken, other)
        assert made.worker_uuid != service.made.worker_uuid
        with pytest.raises(WorkerNotFound):
            await service.heartbeat()


async def test_only_what_is_gone_goes(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=1)
        holds = await healthy(w, "holds")
        assert await holds.claim()
        for _ in range(3):
            await (await healthy(w, "restarts")).goodbye()
        await healthy(w, "restarts")
        drained = await healthy(w, "drained")
        await drain_worker(w.store, drained.made.worker_uuid)
        silent = await healthy(w, "silent")
        await silent.ago(31 * 86_400)  # no control worker has ended it
        await gone(w, "gone")
        await (await healthy(w, "left-lately")).goodbye()
        await delete_expired(w)
        assert await names(w) == ["drained", "holds", "left-lately", "restarts", "silent"]
        kept = await w.value("SELECT count(*) FROM worker_registrations")
        assert kept == 5, "one of each: ended ones are deleted after 30 days"
        answer = await holds.report(*holds.held.values())
        assert answer.statuses == [ReportStatus.COMMITTED]


@pytest.mark.spec("C-34")
async def test_results_name_the_service_for_as_long_as_their_group_exists(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w)
        await submit_named(w, group)
        service = await healthy(w)
        (one,) = await service.claim()
        await service.report(one)
        await service.goodbye()
        for months in range(4):
            if months == 2:
                await settled(w, group)
            await time_passes(w, 31)
            for _ in range(2):
                await delete_expired(w)
            view = await read_task(w.store, one.task_id)
            assert (view.worker_id, view.configuration_version) == ("one", 1), months
        assert await w.value("SELECT count(*) FROM leases") == 0
        await delete_group(w.store, group)
        await delete_expired(w)
        assert await rows_left(w) == 0


async def test_a_service_stays_whose_first_leases_are_not_known(database: str) -> None:
    """It registered before ended leases left which groups it has served."""
    async with world(database) as w:
        await gone(w)
        await w.rows("UPDATE worker_services SET groups_known = false")
        await delete_expired(w)
        assert await names(w) == ["one"]


async def test_a_service_that_crashed_for_a_month_goes_in_chunks(database: str) -> None:
    async with world(database) as w:
        for _ in range(7):
            await healthy(w)
        await gone(w)
        await w.rows(
            "UPDATE worker_registrations SET unregistered_at = unregistered_at + id * d"
            " FROM make_interval(secs => 1) AS d"
        )
        await add_kinds(w.store)
        await w.rows(
            "UPDATE retention SET next_at = now() + interval '1 h' WHERE kind <> 'worker_services'"
        )
        while await delete_expired_chunk(w.store, 2):
            pass
        assert await names(w) == ["one"], "its earlier registrations go first, a few at once"
        await delete_expired(w, 2)
        await delete_expired(w, 2)
        assert await rows_left(w) == 0


async def test_one_that_comes_back_is_a_new_service(database: str) -> None:
    """It loses its uuid, its token, its drain and the numbers of its configurations, and no task."""
    async with world(database) as w:
        old = await gone(w)
        await drain_worker(w.store, old.made.worker_uuid)
        await delete_expired(w)
        own = RegisterWorker(worker_id="one")
        assert await worker_token_version(w.store, old.made.worker_uuid) is None
        with pytest.raises(Unauthenticated):  # its process asks with the token of the user then
            await register_again(w.store, own, old.made.worker_uuid)
        group = await service_group(w, count=2)
        new = await healthy(w, slots=2)
        assert new.made.worker_uuid != old.made.worker_uuid
        assert [one.attempt for one in await new.claim()] == [1, 1]
        await new.report(*list(new.held.values()))
        await settled(w, group)


async def test_a_registration_that_came_first_keeps_the_service(database: str) -> None:
    async with world(database) as w, held(database) as first:
        old = await gone(w)
        new = await healthy(w.on(first))
        await delete_expired(w)  # does not wait
        await first.held.commit()
        assert new.made.worker_uuid == old.made.worker_uuid
        await delete_expired(w)
        assert await names(w) == ["one"]
        await Service(w, "one", new.made).heartbeat()


async def test_a_registration_between_both_statements_keeps_the_service(database: str) -> None:
    """The first one has locked a version of the service from before; the second one looks again."""
    async with world(database) as w:
        await gone(w)
        number = await w.value("SELECT id FROM worker_services")
        await healthy(w)
        async with w.store.database.transaction() as connection:
            deleted = await connection.execute(DELETE_SERVICES, {"services": [number]})
            assert deleted.rowcount == 0


async def test_a_registration_waits_for_the_deletion_and_makes_a_new_service(database: str) -> None:
    async with world(database) as w, held(database) as deleting:
        old = await gone(w)
        await add_kinds(w.store)
        await w.rows(
            "UPDATE retention SET next_at = now() + interval '1 h' WHERE kind <> 'worker_services'"
        )
        assert await delete_expired_chunk(w.on(deleting).store, 100)
        async with asyncio.TaskGroup() as tasks:
            registering = tasks.create_task(healthy(w))
            await until_blocked(w)
            await deleting.held.commit()
        new = registering.result()
        assert new.made.worker_uuid != old.made.worker_uuid
        await service_group(w, count=1)
        assert len(await new.claim()) == 1
        assert await names(w) == ["one"]


async def test_what_a_living_service_supports_no_longer_goes(database: str) -> None:
    """Each deployment brings a new version of a task, and withdraws the one before."""
    async with world(database) as w:
        for version in range(4):
            await healthy(w, "one", task(version=str(version), configuration={"at": version}))
            await time_passes(w, 31)
            await delete_expired(w)
            assert await w.value("SELECT count(*) FROM worker_named_tasks") <= 2, version
            assert await w.value("SELECT count(*) FROM worker_registrations") <= 2, version


async def test_a_number_of_a_configuration_is_used_once(database: str) -> None:
    async with world(database) as w:
        for size in range(3):
            await healthy(w, "one", task(configuration={"size": size}))
        await healthy(w, "one", task("crop"))
        await time_passes(w, 31)
        await delete_expired(w)
        await service_group(w, count=1)
        service = await healthy(w, "one", task(configuration={"size": 9}))
        assert [one.configuration_version for one in await service.claim()] == [4]


async def test_what_is_executed_stays_after_its_withdrawal(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=1)
        service = await healthy(w, slots=2)
        await service.ask()  # the answer is lost
        spec = RegisterWorker.model_validate(
            {
                "worker_id": "one",
                "supported_tasks": [task("crop")],
                "incarnation": service.made.incarnation,
                "slots": 2,
            }
        )
        await register_worker(w.store, spec, w.user_id)
        await time_passes(w, 31)
        await delete_expired(w)
        assert [one.name for one in await service.claim()] == ["resize"]
        await service.report(*list(service.held.values()))
        await delete_expired(w)
        assert await w.value("SELECT count(*) FROM worker_named_tasks") == 1


async def test_a_task_that_is_declared_again_stays(database: str) -> None:
    async with world(database) as w, held(database) as declaring:
        await healthy(w)
        await healthy(w, "one", task("crop"))
        await time_passes(w, 31)
        await healthy(w.on(declaring), "one", task(configuration={"size": 2}))
        await delete_expired(w)  # does not wait
        await declaring.held.commit()
        await delete_expired(w)
        await service_group(w, count=1)
        service = await healthy(w, "one", task(configuration={"size": 2}))
        assert [one.configuration_version for one in await service.claim()] == [2]


async def test_a_task_that_is_declared_while_it_is_deleted_stays(database: str) -> None:
    """The deletion has seen the row from before, and waits for it."""
    async with world(database) as w, held(database) as declaring:
        await healthy(w)
        await healthy(w, "one", task("crop"))
        await time_passes(w, 31)
        await declaring.held.execute("UPDATE worker_named_tasks SET withdrawn_at = NULL")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(delete_expired(w))
            await until_blocked(w)
            await declaring.held.commit()
        assert await w.value("SELECT count(*) FROM worker_named_tasks") == 2
