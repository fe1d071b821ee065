"""Registering worker services: what is written, incarnations, machines, and who may use an id."""

import asyncio
from typing import Any

import pytest

from mitosis.contracts.errors import (
    AlreadyExists,
    InvalidRequest,
    PermissionDenied,
    Superseded,
    WorkerIdInUse,
)
from mitosis.contracts.worker_services import RegisterWorker, SupportedTask
from mitosis.store.registry.views import get_worker
from mitosis.store.services.registration import (
    register_again,
    register_worker,
    worker_token_version,
)
from mitosis.store.users.accounts import add_member, create_user
from tests.support.campaigns import World, world
from tests.support.worker_services import registered, task


async def rows_of(w: World) -> list[tuple[Any, ...]]:
    """Incarnation and end of each registration, the first one first."""
    rows = await w.rows(
        "SELECT incarnation, failure_reason, unregistered_at IS NULL AS current"
        " FROM worker_registrations ORDER BY id"
    )
    return [(row["incarnation"], row["failure_reason"], row["current"]) for row in rows]


@pytest.mark.spec("S004-08", "S004-57")
async def test_a_registration_holds_what_the_service_is_and_its_own_configurations(
    database: str,
) -> None:
    async with world(database) as w:
        for worker_id, size in (("one", 1), ("two", 2)):
            await registered(
                w,
                worker_id,
                task(configuration={"size": size}, priority=7, max_concurrent=3),
                task("crop", "2.1+b"),
                metadata={"pid": size},
                tags={"gpu"},
                labels={"eu"},
                slots=4,
                connection_info={"connection_type": "tcp", "host": "h", "listener_port": 9},
            )
            info = await get_worker(w.store, w.user_id, worker_id)
            assert (info.metadata, info.tags, info.labels) == ({"pid": size}, ["gpu"], ["eu"])
            assert (info.slots, info.silence_seconds, info.groups) == (4, 600, ["alice"])
            assert (info.health, info.connection_type) == ("registered", "tcp")
            assert info.connection_details["listener_port"] == 9
            assert info.supported_tasks is not None
            crop, resize = info.supported_tasks
            assert (crop.name, crop.version, crop.priority) == ("crop", "2.1+b", 100)
            assert (resize.configuration, resize.configuration_version) == ({"size": size}, 1)
            assert (resize.priority, resize.max_concurrent) == (7, 3)
        assert await w.value("SELECT count(*) FROM named_tasks") == 2, "both support the same"
        assert ("scheduler", None) in await w.pokes()


async def test_a_process_that_repeats_its_call_changes_nothing(database: str) -> None:
    async with world(database) as w:
        first = await registered(w, incarnation=5)
        again = await registered(w, incarnation=5)
        assert again.made == first.made
        assert await rows_of(w) == [(5, None, True)]


async def test_each_incarnation_ends_the_one_before(database: str) -> None:
    async with world(database) as w:
        await registered(w, incarnation=5)
        later = await registered(w, incarnation=6)
        assert await rows_of(w) == [(5, "new_incarnation", False), (6, None, True)]
        with pytest.raises(Superseded) as refused:
            await registered(w, "one", task("crop"), incarnation=5)
        assert refused.value.facts == {"incarnation": 6}
        info = await get_worker(w.store, w.user_id, "one")
        assert info.supported_tasks is not None
        assert [one.name for one in info.supported_tasks] == ["resize"], "nothing of it was kept"
        await later.ago(600)
        assert (await registered(w)).made.incarnation == 7, "the next one, when none is given"
        assert (await rows_of(w))[1:] == [(6, "silent", False), (7, None, True)]
        ended = (
            "SELECT unregistered_at = alive_until FROM worker_registrations WHERE incarnation = 6"
        )
        assert await w.value(ended), "it was over when its time was over"


async def test_a_second_machine_needs_the_first_to_be_gone_or_a_take_over(database: str) -> None:
    async with world(database) as w:
        first = await registered(w, incarnation=5, machine_id="a")
        with pytest.raises(WorkerIdInUse):
            await registered(w, incarnation=6, machine_id="b")
        await first.ago(600)
        assert (await registered(w, incarnation=6, machine_id="b")).made.incarnation == 6
        taken = await registered(w, incarnation=1, machine_id="c", take_over=True)
        assert taken.made.incarnation == 7
        with pytest.raises(Superseded):
            await first.heartbeat()


@pytest.mark.spec("S004-07")
async def test_what_a_registration_leaves_out_is_supported_no_longer(database: str) -> None:
    async with world(database) as w:

        async def supported(*tasks: dict[str, Any]) -> dict[str, int]:
            await registered(w, "one", *tasks)
            found = (await get_worker(w.store, w.user_id, "one")).supported_tasks or ()
            return {one.name: one.configuration_version for one in found}

        crop, resize = task("crop"), task(configuration={"a": 1})
        assert await supported(crop, resize) == {"crop": 1, "resize": 1}
        assert await supported(resize) == {"resize": 1}
        assert await supported(crop, task(configuration={"a": 2})) == {"crop": 1, "resize": 2}
        assert await supported(crop) == {"crop": 1}
        assert await supported(task(configuration={"a": 1})) == {"resize": 3}, (
            "a number never twice"
        )


async def test_a_worker_id_serves_who_has_all_of_its_roles(database: str) -> None:
    async with world(database) as w:
        bob = await create_user(w.store, "bob")
        spec = RegisterWorker(worker_id="one")
        first = await register_worker(w.store, spec, w.user_id)
        with pytest.raises(AlreadyExists):
            await register_worker(w.store, spec, bob.user_id)
        await add_member(w.store, "alice", "bob", "read")
        with pytest.raises(PermissionDenied):
            await register_worker(w.store, spec, bob.user_id)
        await add_member(w.store, "alice", "bob", "write")
        again = await register_worker(w.store, spec, bob.user_id)
        assert again.worker_uuid == first.worker_uuid
        wider = spec.model_copy(update={"groups": ("bob", "alice:admin")})
        with pytest.raises(PermissionDenied):
            await register_worker(w.store, wider, bob.user_id)
        await register_worker(
            w.store, spec.model_copy(update={"groups": ("bob", "alice")}), bob.user_id
        )
        with pytest.raises(PermissionDenied):
            await register_worker(w.store, spec, w.user_id)
        tasks = RegisterWorker(
            worker_id="x", groups=("bob:read",), supported_tasks=(SupportedTask(**task()),)
        )
        with pytest.raises(InvalidRequest, match="role write"):
            await register_worker(w.store, tasks, bob.user_id)


async def test_the_token_of_a_service_registers_that_service_only(database: str) -> None:
    async with world(database) as w:
        one, two = await registered(w, "one"), await registered(w, "two")
        assert await worker_token_version(w.store, one.made.worker_uuid) == 1
        spec = RegisterWorker(worker_id="one", supported_tasks=(SupportedTask(**task("crop")),))
        made = await register_again(w.store, spec, one.made.worker_uuid)
        assert (made.worker_uuid, made.incarnation) == (one.made.worker_uuid, 2)
        for wrong in ({"worker_id": "two"}, {"worker_id": "none"}, {"groups": ("alice",)}):
            with pytest.raises(PermissionDenied):
                await register_again(w.store, spec.model_copy(update=wrong), one.made.worker_uuid)
        assert await worker_token_version(w.store, two.made.worker_uuid) == 1


@pytest.mark.spec("S004-10")
async def test_registrations_at_the_same_time_end_with_one_row_each(database: str) -> None:
    async with world(database) as w:
        names = [f"n{i}" for i in range(30)]
        both = [[*map(task, names)], [*map(task, reversed(names))]]
        await asyncio.gather(
            *(registered(w, f"s{i % 4}", *tasks) for i, tasks in enumerate(both * 4))
        )
        assert await w.value("SELECT count(*) FROM named_tasks") == 30
        current = "SELECT count(*) FROM worker_registrations WHERE unregistered_at IS NULL"
        assert await w.value(current) == 4
