"""An outage of the API or of PostgreSQL is no silence of hosts: their clocks start anew (protocol P4)."""

from datetime import timedelta
from uuid import UUID

from api.service import ApiOptions, running_api
from mitosis.contracts.control import ReleaseReason, ReleaseRequest, ReleaseStatus
from mitosis.contracts.temporal_names import NAMESPACE
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.managers.api_liveness import record_api_heartbeat
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.store import StoreOptions
from tests.support.campaigns import Host, World, world
from tests.support.http_api import NoTemporal


async def release_lost(w: World, host: Host, epoch: int | None) -> ReleaseStatus:
    request = ReleaseRequest(manager_id=host.manager_id, epoch=epoch, reason=ReleaseReason.LOST)
    return (await release_lease(w.store, request)).status


async def nobody_listened_for(w: World, seconds: int) -> None:
    """All that PostgreSQL knows of a time in which no API ran: everything in it is so much older."""
    ago = timedelta(seconds=seconds)
    await w.rows("UPDATE api_pulse SET beat_at = beat_at - %s", ago)
    await w.rows("UPDATE leases SET alive_until = alive_until - %s", ago)
    await w.rows("UPDATE manager_live SET last_contact_at = last_contact_at - %s", ago)


async def working_and_idle(w: World) -> tuple[Host, Host, UUID]:
    group = await w.group(max_managers=1)
    await w.submit(group, 2)
    working = await w.leased_host(group)
    await working.renew(started=(await working.claim(1)).tasks)
    return working, await w.host(), group


async def test_nobody_is_lost_while_nobody_listens_and_then_the_clocks_start_anew(
    database: str,
) -> None:
    async with world(database) as w:
        working, idle, _ = await working_and_idle(w)
        assert not await record_api_heartbeat(w.store)
        await nobody_listened_for(w, 300)
        assert await release_lost(w, working, working.epoch) == "alive"
        assert await release_lost(w, idle, None) == "alive"
        assert await record_api_heartbeat(w.store)
        assert await release_lost(w, working, working.epoch) == "alive"
        view = await observe_manager(w.store, working.manager_id)
        assert view.lease is not None
        assert (view.lease.alive_in_seconds or 0) > 80
        view = await observe_manager(w.store, idle.manager_id)
        assert (view.lost_in_seconds or 0) > 80
        assert not await record_api_heartbeat(w.store), "only the first one"
        await w.rows("UPDATE leases SET alive_until = now()")
        assert await release_lost(w, working, working.epoch) == "released"


async def test_a_host_that_was_silent_for_long_before_the_outage_is_not_heard_by_it(
    database: str,
) -> None:
    async with world(database) as w:
        working, idle, _ = await working_and_idle(w)
        await record_api_heartbeat(w.store)
        await w.rows("UPDATE leases SET alive_until = now() - interval '1 second'")
        await w.rows("UPDATE manager_live SET last_contact_at = now() - interval '91 seconds'")
        await nobody_listened_for(w, 60)
        assert await record_api_heartbeat(w.store)
        assert await release_lost(w, working, working.epoch) == "released"
        assert await release_lost(w, idle, None) == "released"


async def test_the_api_starts_the_clocks_anew_before_it_serves(database: str) -> None:
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace=NAMESPACE,
    )
    async with world(database) as w:
        group = await w.group(host_lost_after=timedelta(seconds=20))
        await w.submit(group, 1)
        host = await w.leased_host(group)
        async with running_api(options, NoTemporal()):
            assert await w.value("SELECT count(*) FROM api_pulse") == 1
        await nobody_listened_for(w, 60)
        async with running_api(options, NoTemporal()):
            view = await observe_manager(w.store, host.manager_id)
        assert view.lease is not None
        assert 15 < (view.lease.alive_in_seconds or 0) <= 20, "the group's own time"
