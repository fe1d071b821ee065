"""Heartbeats, goodbyes, drains, and registrations that end because nothing is heard."""

import pytest

from mitosis.contracts.errors import Superseded, WorkerNotFound, WorkerNotRegistered
from mitosis.store.leases import silent_services
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.leases.silent_services import end_silent_registrations
from mitosis.store.registry.views import get_worker, registration_history
from mitosis.store.services.contact import (
    drain_worker,
    record_heartbeat,
    resume_worker,
    say_goodbye,
)
from tests.support.campaigns import World, world
from tests.support.worker_services import registered


async def health(w: World) -> str:
    return (await get_worker(w.store, w.user_id, "one")).health


@pytest.mark.spec("C-20", "S004-09", "S004-61")
async def test_the_health_of_a_service_through_its_life(database: str) -> None:
    async with world(database) as w:
        service = await registered(w)
        assert await health(w) == "registered"
        await service.heartbeat()
        assert await health(w) == "healthy"
        await service.ago(119)
        assert await health(w) == "healthy"
        await service.ago(2)
        assert await health(w) == "unhealthy"
        await service.heartbeat()
        assert await health(w) == "healthy"
        await service.ago(599)
        assert await health(w) == "unhealthy"
        await service.ago(1)
        assert await health(w) == "disconnected"
        with pytest.raises(WorkerNotRegistered):
            await service.heartbeat()
        again = await registered(w)
        await again.heartbeat()
        assert await health(w) == "healthy"
        await again.goodbye()
        assert await health(w) == "disconnected"


@pytest.mark.spec("S004-29")
async def test_a_heartbeat_needs_a_service_and_its_current_registration(database: str) -> None:
    async with world(database) as w:
        service = await registered(w, incarnation=4)
        worker = service.made.worker_uuid
        assert (await service.heartbeat()).registration_id == service.made.registration_id
        with pytest.raises(WorkerNotFound):
            await record_heartbeat(w.store, w.user_id, 4)
        with pytest.raises(WorkerNotRegistered):
            await record_heartbeat(w.store, worker, 5)
        with pytest.raises(Superseded) as refused:
            await record_heartbeat(w.store, worker, 3)
        assert refused.value.facts == {"incarnation": 4}
        await service.goodbye()
        with pytest.raises(WorkerNotRegistered) as over:
            await service.heartbeat()
        assert over.value.facts == {"worker_id": "one"}


@pytest.mark.spec("S004-11", "S004-54")
async def test_the_history_has_each_end_with_its_reason_and_duration(database: str) -> None:
    async with world(database) as w:
        first = await registered(w)
        await first.ago(100)
        await first.goodbye("deployed 1.2")
        await first.goodbye("a late one")
        second = await registered(w)
        await first.goodbye("of the process before")
        await second.ago(4000)
        third = await registered(w)
        await third.ago(50)
        page = await registration_history(w.store, first.made.worker_uuid)
        assert [one.failure_reason for one in page.items] == [None, "silent", "deployed 1.2"]
        assert [round(one.duration_seconds) for one in page.items] == [50, 600, 100]
        assert [one.unregistered_at is None for one in page.items] == [True, False, False]
        part = await registration_history(w.store, first.made.worker_uuid, limit=2)
        rest = await registration_history(w.store, first.made.worker_uuid, after=part.next)
        ids = [one.registration_id for one in (*part.items, *rest.items)]
        assert (ids, rest.next) == ([one.registration_id for one in page.items], None)
        with pytest.raises(WorkerNotFound):
            await say_goodbye(w.store, w.user_id, 1, "of none")


async def test_the_round_of_the_scheduler_ends_silent_registrations(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database) as w:
        assert await end_silent_registrations(w.store) is None
        assert (await assign_round(w.store)).next_round_in_seconds is None
        services = [await registered(w, f"s{i}", silence_seconds=100) for i in range(5)]
        due = (await assign_round(w.store)).next_round_in_seconds
        assert due is not None
        assert 90 < due <= 100
        monkeypatch.setattr(silent_services, "ENDED_AT_ONCE", 2)
        for service in services[:4]:
            await service.ago(130)
        due = (await assign_round(w.store)).next_round_in_seconds
        assert due is not None
        assert 90 < due <= 100, "of the one that is left"
        ended = await w.rows(
            "SELECT failure_reason, unregistered_at = alive_until AS in_time"
            " FROM worker_registrations WHERE unregistered_at IS NOT NULL"
        )
        assert ended == [{"failure_reason": "silent", "in_time": True}] * 4
        monkeypatch.setattr(silent_services, "ENDED_AT_ONCE", 100)
        await services[4].ago(100)
        assert await end_silent_registrations(w.store) is None


async def test_a_drain_stays_over_restarts_until_it_is_ended(database: str) -> None:
    async with world(database) as w:
        service = await registered(w)
        assert not (await service.heartbeat()).draining
        await drain_worker(w.store, service.made.worker_uuid, "new disks")
        await drain_worker(w.store, service.made.worker_uuid)
        again = await registered(w)
        assert (await again.heartbeat()).draining
        info = await get_worker(w.store, w.user_id, "one")
        assert (info.drain_reason, info.health) == ("new disks", "healthy")
        assert info.draining_since is not None
        await resume_worker(w.store, service.made.worker_uuid)
        assert not (await again.heartbeat()).draining
