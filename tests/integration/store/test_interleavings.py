"""Endings against claims, reports and submits, with each held open while the other waits (protocol P1).

Whoever locks first, the same must hold afterwards: no claimed row under an epoch that has ended, and
counters equal to the rows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest

from mitosis.contracts.agent_http import EnvironmentChange, Hello
from mitosis.contracts.control import ReleaseAnswer, ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import TaskGroupClosed
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import LeaseStanding, ReportStatus
from mitosis.store.control.control_store import ControlStore
from mitosis.store.leases.ending import end_lease, lock_lease
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.contact import record_contact
from mitosis.store.managers.environments import change_environment
from mitosis.store.managers.hello import say_goodbye, say_hello
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.pg.database import Database
from mitosis.store.store import Store
from tests.support.campaigns import (
    Host,
    World,
    failed,
    held,
    stranded,
    succeeded,
    until_blocked,
    world,
)

Ending = Callable[[World, Host, UUID, Database], Awaitable[object]]


async def release(w: World, host: Host, group: UUID, database: Database) -> object:
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.MOVED
    )
    return await release_lease(Store(database=database), request)


async def lost(w: World, host: Host, group: UUID, database: Database) -> object:
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
    )
    return await release_lease(Store(database=database), request)


async def hello(w: World, host: Host, group: UUID, database: Database) -> object:
    body = Hello(
        incarnation=host.incarnation + 1,
        machine_id=host.machine,
        boot_id=host.boot,
        host_name="host",
        cores=(0, 1),
        agent_version="test",
    )
    return await say_hello(Store(database=database), host.manager_id, body)


async def goodbye(w: World, host: Host, group: UUID, database: Database) -> object:
    await say_goodbye(Store(database=database), host.manager_id, host.epoch)
    return None


async def cancel(w: World, host: Host, group: UUID, database: Database) -> object:
    return await w.on(database).cancel(group)


async def force(w: World, host: Host, group: UUID, database: Database) -> object:
    return await w.on(database).complete(group, force=True)


LEASE_ENDINGS = [release, hello, goodbye]
GROUP_ENDINGS = [cancel, force]


async def start(w: World, count: int = 4) -> tuple[Host, UUID]:
    group = await w.group()
    policy = RetryPolicy(max_attempts=3)
    await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=policy) for _ in range(count)])
    return await w.leased_host(group), group


def on(host: Host, database: Database) -> Host:
    """The same host, its claims and reports on another connection."""
    return replace(host, world=host.world.on(database))


@pytest.mark.parametrize("ending", LEASE_ENDINGS + GROUP_ENDINGS)
async def test_an_ending_waits_for_a_claim_and_sees_what_it_took(
    database: str, ending: Ending
) -> None:
    async with world(database) as w, held(database) as claiming:
        host, group = await start(w)
        answer = await on(host, claiming).claim(3)
        assert len(answer.tasks) == 3
        task = asyncio.ensure_future(ending(w, host, group, w.database))
        await until_blocked(w)
        await claiming.commit()
        await task
        assert await stranded(w) == 0
        claimed = 0 if ending in LEASE_ENDINGS else 3
        assert await w.value("SELECT count(*) FROM open_task WHERE state = 1") == claimed
        await w.check()


@pytest.mark.parametrize("ending", LEASE_ENDINGS + GROUP_ENDINGS)
async def test_a_claim_waits_for_an_ending_and_takes_nothing(database: str, ending: Ending) -> None:
    async with world(database) as w, held(database) as ending_side:
        host, group = await start(w)
        await ending(w, host, group, ending_side)
        claim = asyncio.create_task(host.claim())
        await until_blocked(w)
        await ending_side.commit()
        answer = await claim
        gone = ending in LEASE_ENDINGS
        assert answer.standing is (LeaseStanding.GONE if gone else LeaseStanding.ENDING)
        assert answer.tasks == []
        assert await stranded(w) == 0


@pytest.mark.spec("S000-150")
async def test_a_renewal_that_waits_for_the_loss_of_its_lease_learns_of_it(database: str) -> None:
    async with world(database) as w, held(database) as losing:
        host, group = await start(w)
        await w.rows("UPDATE leases SET alive_until = now()")
        await lost(w, host, group, losing)
        renewal = asyncio.create_task(host.renew())
        await until_blocked(w)
        await losing.commit()
        assert (await renewal).standing is LeaseStanding.GONE
        assert await w.value("SELECT state FROM leases") == "ended"


@pytest.mark.spec("S000-150")
async def test_a_loss_that_waits_for_a_renewal_takes_nothing(database: str) -> None:
    async with world(database) as w, held(database) as renewing:
        host, group = await start(w)
        await w.rows("UPDATE leases SET alive_until = now()")
        await record_contact(Store(database=renewing), host.manager_id)
        loss = asyncio.ensure_future(lost(w, host, group, w.database))
        await until_blocked(w)
        await renewing.commit()
        answer = await loss
        assert isinstance(answer, ReleaseAnswer)
        assert answer.status == "alive"
        assert (await host.renew()).standing is LeaseStanding.ACTIVE


@pytest.mark.parametrize("outcome", ["succeeded", "retried"])
@pytest.mark.parametrize("ending", [*LEASE_ENDINGS, *GROUP_ENDINGS, lost])
async def test_an_ending_waits_for_a_report_and_requeues_only_the_rest(
    database: str, ending: Ending, outcome: str
) -> None:
    async with world(database) as w, held(database) as reporting:
        host, group = await start(w)
        one, *_ = (await host.claim()).tasks
        if ending is lost:
            await w.rows("UPDATE leases SET alive_until = now()")
        report = succeeded(one) if outcome == "succeeded" else failed(one, exit_code=1)
        answer = await on(host, reporting).report(report)
        assert answer.statuses == [ReportStatus.COMMITTED]
        task = asyncio.ensure_future(ending(w, host, group, w.database))
        await until_blocked(w)
        await reporting.commit()
        await task
        assert await stranded(w) == 0
        left = await w.value("SELECT unfinished FROM group_live")
        assert left == (3 if outcome == "succeeded" else 4)
        row = await w.rows("SELECT * FROM open_task WHERE id = %s", one.task_id)
        assert [r["exit_failures"] for r in row] == ([] if outcome == "succeeded" else [1])
        await w.check()


@pytest.mark.parametrize("ending", [*LEASE_ENDINGS, *GROUP_ENDINGS, lost])
async def test_a_report_waits_for_an_ending_and_counts_all_the_same(
    database: str, ending: Ending
) -> None:
    async with world(database) as w, held(database) as ending_side:
        host, group = await start(w)
        one, *_ = (await host.claim()).tasks
        await host.renew(started=[one])
        if ending is lost:
            await w.rows("UPDATE leases SET alive_until = now()")
        await ending(w, host, group, ending_side)
        report = asyncio.create_task(host.finish([one]))
        await until_blocked(w)
        await ending_side.commit()
        assert (await report).statuses == [ReportStatus.COMMITTED]
        assert await w.value("SELECT succeeded FROM group_live") == 1
        assert await stranded(w) == 0
        await w.check()


@pytest.mark.parametrize("ending", GROUP_ENDINGS)
async def test_an_ending_waits_for_a_submit_and_counts_it(database: str, ending: Ending) -> None:
    async with world(database) as w, held(database) as submitting:
        host, group = await start(w)
        await w.on(submitting).submit(group, 5)
        task = asyncio.ensure_future(ending(w, host, group, w.database))
        await until_blocked(w)
        await submitting.commit()
        await task
        assert (await w.control.observe_task_group(group)).unfinished == 9
        await w.discard_all(group)
        assert (await w.control.observe_task_group(group)).unfinished == 0
        await w.check()


@pytest.mark.parametrize("ending", GROUP_ENDINGS)
async def test_a_submit_waits_for_an_ending_and_is_refused(database: str, ending: Ending) -> None:
    async with world(database) as w, held(database) as ending_side:
        host, group = await start(w)
        await ending(w, host, group, ending_side)
        submit = asyncio.create_task(w.submit(group, 5))
        await until_blocked(w)
        await ending_side.commit()
        with pytest.raises(TaskGroupClosed):
            await submit
        await w.check()


async def test_a_finalize_waits_for_a_reopen_and_does_nothing(database: str) -> None:
    async with world(database) as w, held(database) as reopening:
        group = await w.group()
        await w.close(group)
        await w.on(reopening).reopen(group)
        finalize = asyncio.create_task(w.control.finalize(group))
        await until_blocked(w)
        await reopening.commit()
        assert (await finalize).state == "open"


async def test_a_reopen_waits_for_a_finalize_and_is_refused(database: str) -> None:
    async with world(database) as w, held(database) as finalizing:
        group = await w.group()
        await w.close(group)
        await ControlStore(Store(database=finalizing)).finalize(group)
        reopen = asyncio.create_task(w.reopen(group))
        await until_blocked(w)
        await finalizing.commit()
        with pytest.raises(Exception, match="complete"):
            await reopen
        assert (await w.control.finalize(group)).state == "complete", "again is success"


async def test_an_offer_comes_before_or_after_an_ending_never_between(database: str) -> None:
    """The round has looked at the group; the group ends before the offer is written."""
    async with world(database) as w, held(database) as cancelling:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        await cancel(w, host, group, cancelling)
        assigning = asyncio.create_task(assign_round(w.store))
        await until_blocked(w)
        await cancelling.commit()
        assert (await assigning).offered == 0
        assert await w.value("SELECT count(*) FROM leases") == 0


async def test_an_ending_that_waits_for_a_round_withdraws_its_offer(database: str) -> None:
    async with world(database) as w, held(database) as assigning:
        group = await w.group()
        await w.submit(group, 1)
        host = await w.host()
        assert (await assign_round(Store(database=assigning))).offered == 1
        cancelling = asyncio.create_task(w.cancel(group))
        await until_blocked(w)
        await assigning.commit()
        view = await cancelling
        assert (view.state, view.live_leases) == ("cancelled", 0)
        assert (await observe_manager(w.store, host.manager_id)).lease is None


@pytest.mark.parametrize("ending", GROUP_ENDINGS)
async def test_the_ending_of_a_group_takes_its_leases_first(database: str, ending: Ending) -> None:
    """A release holds the lease and wants the group: the ending must not hold the group by then."""
    async with world(database) as w, held(database) as releasing:
        host, group = await start(w)
        await host.claim()
        lease = await lock_lease(releasing.held, host.manager_id, host.epoch)
        assert lease is not None
        task = asyncio.ensure_future(ending(w, host, group, w.database))
        await until_blocked(w)
        assert await end_lease(releasing.held, lease, ReleaseReason.MOVED) == 4
        await releasing.commit()
        await task
        assert (await w.control.observe_task_group(group)).live_leases == 0
        assert await stranded(w) == 0
        await w.check()


async def test_an_environment_that_goes_while_its_group_ends_tells_the_group(database: str) -> None:
    """Whichever commits first: the group, which waits for the environment, looks once more (P8)."""
    async with world(database) as w, held(database) as change:
        host, group = await start(w)
        await release_lease(
            w.store,
            ReleaseRequest(
                manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.SETUP_LOST
            ),
        )
        await host.environment(group, "tear_down")
        await change_environment(
            Store(database=change), host.manager_id, group, EnvironmentChange(event="cleaned")
        )
        await w.cancel(group)
        assert (await w.control.observe_task_group(group)).busy_environments == 1
        await w.pokes()
        await change.commit()
        assert ("task_group", group) in await w.pokes()
