"""Every ending against a claim, a report, a submit; either is held open while the other runs (protocol P1).

The whole matrix, by transactions that the test commits when it likes; ``test_interleavings.py`` says of
the common pairs exactly who waits for whom. Whatever comes first, afterwards nothing may be stranded, the
counters are the rows, and every task that was accepted comes to exactly one end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest

from mitosis.contracts.agent_http import Hello
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.errors import InvalidTransition, MitosisError
from mitosis.store.leases import ending
from mitosis.store.leases.ending import LockedGroup, lock_group
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.hello import say_goodbye, say_hello
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import observe_manager
from mitosis.store.pg.database import Connection
from tests.support.campaigns import Host, World, held, stranded, until_blocked, world
from tests.support.waiting import wait_until_async

Deed = Callable[[World, Host, UUID], Awaitable[object]]
"""Something done in a world whose stores may be those of a transaction that is held open."""


# --- what tasks do ------------------------------------------------------------------------------------


async def claim(w: World, host: Host, group: UUID) -> object:
    return await replace(host, world=w).claim(2)


async def report(w: World, host: Host, group: UUID) -> object:
    first = next(iter(host.held.values()))
    return await replace(host, world=w).finish([first])


async def submit(w: World, host: Host, group: UUID) -> object:
    return await w.submit(group, 2)


# --- how it ends --------------------------------------------------------------------------------------


async def close(w: World, host: Host, group: UUID) -> object:
    return await w.close(group)


async def complete(w: World, host: Host, group: UUID) -> object:
    return await w.complete(group)


async def force(w: World, host: Host, group: UUID) -> object:
    return await w.complete(group, force=True)


async def cancel(w: World, host: Host, group: UUID) -> object:
    return await w.cancel(group)


async def auto_close(w: World, host: Host, group: UUID) -> object:
    return await w.control.close_if_inactive(group)


async def reopen(w: World, host: Host, group: UUID) -> object:
    return await w.reopen(group)


async def finalize(w: World, host: Host, group: UUID) -> object:
    return await w.control.finalize(group)


async def release(w: World, host: Host, group: UUID) -> object:
    return await release_lease(w.store, _request(host, ReleaseReason.MOVED))


async def lost(w: World, host: Host, group: UUID) -> object:
    return await release_lease(w.store, _request(host, ReleaseReason.LOST))


async def hello(w: World, host: Host, group: UUID) -> object:
    return await say_hello(
        w.store,
        host.manager_id,
        Hello(
            incarnation=host.incarnation + 1,
            machine_id=host.machine,
            boot_id=host.boot,
            host_name="host",
            cores=(0, 1),
            agent_version="test",
        ),
    )


async def goodbye(w: World, host: Host, group: UUID) -> object:
    await say_goodbye(w.store, host.manager_id, host.epoch)
    return None


def _request(host: Host, reason: ReleaseReason) -> ReleaseRequest:
    return ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=reason)


ENDINGS = (
    close,
    complete,
    force,
    cancel,
    auto_close,
    reopen,
    finalize,
    release,
    lost,
    hello,
    goodbye,
)


@pytest.mark.parametrize("ending_first", [False, True], ids=["deed held", "ending held"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("deed", [claim, report, submit])
async def test_an_ending_and_a_deed_come_one_after_the_other(
    database: str, deed: Deed, ending: Deed, ending_first: bool
) -> None:
    async with world(database) as w, held(database) as open_one:
        group, host = await _begun(w, deed, ending)
        first, second = (ending, deed) if ending_first else (deed, ending)
        done = [await _tried(first(w.on(open_one), host, group))]
        task = asyncio.ensure_future(_tried(second(w, host, group)))
        await _done_or_blocked(w, task)
        await open_one.commit()
        done.append(await task)
        assert await stranded(w) == 0
        await w.check()
        await _bring_to_an_end(w, group)
        closed_before = deed is submit and ending in (reopen, finalize)
        assert ending_first or closed_before or done[0] is None, "the deed itself was done"
        assert all(one is None or isinstance(one, InvalidTransition | str) for one in done), done


async def _begun(w: World, deed: Deed, ending: Deed) -> tuple[UUID, Host]:
    """A group with a leased host that has claimed two of four tasks, as the ending needs it."""
    group = await w.group(auto_close_timeout="1h")
    await w.submit(group, 4)
    host = await w.leased_host(group)
    await host.claim(2)
    if ending in (reopen, finalize):
        await w.close(group)
    if ending is lost:
        await w.rows("UPDATE leases SET alive_until = now()")
    if ending is auto_close:
        await w.rows("UPDATE group_live SET last_task_submitted_at = now() - interval '2 h'")
    return group, host


async def _tried(deed: Awaitable[object]) -> object:
    """None when it was done; a closed group and a table's refusal are answers too."""
    try:
        await deed
    except InvalidTransition as refused:
        return refused
    except MitosisError as refused:
        return refused.code if refused.code == "task_group_closed" else refused
    return None


async def _done_or_blocked(w: World, task: "asyncio.Future[object]") -> None:
    async def settled() -> bool:
        return task.done() or bool(
            await w.value(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock'"
            )
        )

    await wait_until_async(settled)


async def _bring_to_an_end(w: World, group: UUID) -> None:
    """Whatever happened, the group can be ended, and then every task has exactly one result."""
    for verb in (w.close, w.cancel):
        await _tried(verb(group))
    await w.discard_all(group)
    for row in await w.rows("SELECT epoch, manager_id FROM leases WHERE state <> 'ended'"):
        manager = await w.value("SELECT uuid FROM managers WHERE id = %s", row["manager_id"])
        await release_lease(
            w.store,
            ReleaseRequest(manager_id=manager, epoch=row["epoch"], reason=ReleaseReason.MOVED),
        )
    await w.discard_all(group)
    total, ended = (
        await w.value("SELECT total FROM group_live"),
        await w.value("SELECT count(*) FROM task_result"),
    )
    assert ended == total
    assert (await w.control.observe_task_group(group)).unfinished == 0
    await w.check()


# --- a lease that comes between two locks of an ending ------------------------------------------------


@pytest.mark.parametrize("ends", [cancel, force])
async def test_a_lease_that_is_offered_between_the_locks_of_an_ending_ends_too(
    database: str, monkeypatch: pytest.MonkeyPatch, ends: Deed
) -> None:
    """Whoever holds a lease may ask for its group: the ending asks for no lease while it holds the group."""

    async def lock_lease_and_group(w: World) -> None:
        async with w.store.database.transaction() as connection:
            await connection.execute("SELECT FROM leases WHERE state = 'offered' FOR UPDATE")
            await connection.execute("SELECT FROM group_live FOR UPDATE")

    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 20)
        first = await w.leased_host(group)
        await first.claim(2)
        late: list[Host] = []
        others: list[asyncio.Task[None]] = []

        async def after_an_offer(connection: Connection, number: int) -> LockedGroup:
            if late:
                return await lock_group(connection, number)
            late.append(await w.host())
            assert (await assign_round(w.store)).offered == 1
            locked = await lock_group(connection, number)
            others.append(asyncio.create_task(lock_lease_and_group(w)))
            await until_blocked(w)
            return locked

        monkeypatch.setattr(ending, "lock_group", after_an_offer)
        await ends(w, first, group)
        await others[0]  # no deadlock
        assert (await observe_manager(w.store, late[0].manager_id)).lease is None
        assert await stranded(w) == 0
