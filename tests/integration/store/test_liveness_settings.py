"""The two intervals of liveness: set once, the same for API, explain, scheduler and control worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from mitosis.cli.stack.whole_stack import store_options
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.ids import task_uuid
from mitosis.settings import Settings
from mitosis.store.control.control_store import ControlStore
from mitosis.store.groups.explain import explain_group, explain_task
from mitosis.store.managers.views import get_manager
from mitosis.store.store import Store
from mitosis.store.users.accounts import create_user
from tests.support.campaigns import World


@asynccontextmanager
async def set_world(url: str, *, lost: float = 90.0, suspect: float = 10.0) -> AsyncIterator[World]:
    """A world whose intervals come from the settings, as in the processes of the product."""
    settings = Settings.model_validate(
        {"hosts": {"lost_after_seconds": lost, "suspect_after_seconds": suspect}}
    )
    async with Store.open(store_options(settings, url)) as store:
        user = await create_user(store, "alice")
        yield World(store, user.user_id)


async def silence(w: World, seconds: float) -> None:
    """Move every clock as if no host had called for so long."""
    await w.rows(
        "UPDATE manager_live SET last_contact_at = last_contact_at - make_interval(secs => %s)",
        seconds,
    )
    await w.rows("UPDATE leases SET alive_until = alive_until - make_interval(secs => %s)", seconds)


@pytest.mark.parametrize(("suspect", "in_contact"), [(5.0, False), (30.0, True)])
async def test_a_host_is_suspect_everywhere_after_the_interval_that_is_set(
    database: str, suspect: float, *, in_contact: bool
) -> None:
    async with set_world(database, suspect=suspect) as w:
        busy, waits = await w.group("busy", max_managers=1), await w.group("waits")
        await w.submit(busy)
        host = await w.leased_host(busy)
        tasks = (await host.claim()).tasks
        free = await w.host()
        await w.submit(waits)
        await silence(w, 15)
        control = ControlStore(w.store)

        for one in (host, free):
            assert (await control.observe_manager(one.manager_id)).online is in_contact
        number = await w.value("SELECT id FROM task_groups WHERE name = 'busy'")
        of_task = await explain_task(w.store, task_uuid(number, tasks[0].task_id))
        assert (of_task.code == "suspect") is not in_contact
        assert ((await explain_group(w.store, busy)).code == "suspect") is not in_contact
        of_group = await explain_group(w.store, waits)
        assert of_group.code == ("assigning" if in_contact else "no_contact")
        assert (await control.assign_round()).offered == int(in_contact)


async def lost_in(w: World, manager_id: UUID) -> tuple[Any, ...]:
    """Whether a host is shown as offline, what its workflow sees, and what a release for loss answers."""
    control = ControlStore(w.store)
    view = await control.observe_manager(manager_id)
    epoch = None if view.lease is None else view.lease.epoch
    request = ReleaseRequest(manager_id=manager_id, epoch=epoch, reason=ReleaseReason.LOST)
    shown = (await get_manager(w.store, manager_id)).state == "offline"
    return shown, view.state == "offline", str((await control.release(request)).status)


@pytest.mark.parametrize(("lost", "own"), [(20.0, None), (60.0, None), (60.0, 20), (20.0, 60)])
@pytest.mark.parametrize("leased", [True, False])
async def test_a_host_is_lost_everywhere_after_the_interval_that_is_set(
    database: str, lost: float, own: int | None, *, leased: bool
) -> None:
    """A group's own value counts for a host with its lease; without a lease the deployment's does."""
    async with set_world(database, lost=lost) as w:
        group = await w.group(host_lost_after=own)
        await w.submit(group)
        host = await w.leased_host(group) if leased else await w.host()
        expected = (own or lost) if leased else lost
        answer = await host.hello()
        assert answer.host_lost_after_seconds == expected
        if leased:
            assert (await host.renew()).host_lost_after_seconds == expected
            renewed = await w.value(
                "SELECT extract(epoch FROM alive_until - now())::float8 FROM leases"
                " WHERE state = 'active'"
            )
            assert expected - 5 < renewed <= expected
        await silence(w, 40)
        alive = expected > 40
        assert await lost_in(w, host.manager_id) == (
            not alive,
            not alive,
            "alive" if alive else "released",
        )


@pytest.mark.parametrize(("own", "seconds"), [(None, 33), (12, 12)])
async def test_texts_name_the_interval_in_force(
    database: str, own: int | None, seconds: int
) -> None:
    async with set_world(database, lost=33.0) as w:
        group = await w.group(host_lost_after=own)
        await w.submit(group)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await w.complete(group)
        await silence(w, 11)
        line = (await explain_group(w.store, group)).line
        assert line.endswith(f"their teardown is owed after {seconds} s of silence")
