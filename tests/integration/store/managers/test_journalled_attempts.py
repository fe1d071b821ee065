"""What hello does with the attempts in an agent's journal, and which running attempts still count (P5)."""

import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from mitosis.contracts.agent_http import AttemptList
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.task import RetryPolicy, TaskSubmission
from mitosis.contracts.wire import ClaimedTask, Held, Renewal, TaskAttempt
from mitosis.store.groups.endings import settle
from mitosis.store.managers.contact import renew
from mitosis.store.managers.release import release_lease
from mitosis.store.managers.views import get_manager, observe_manager
from tests.support.campaigns import Host, World, failed, stranded, succeeded, world

Verb = Callable[[World, UUID, Host], Awaitable[object]]


async def nothing(*_: object) -> None:
    pass


async def moved(w: World, _: UUID, host: Host) -> None:
    await w.rows(
        "UPDATE leases SET state = 'ending', end_reason = 'moved' WHERE epoch = %s", host.epoch
    )


VERBS: dict[str, tuple[str, Verb]] = {
    "goes on": ("active", nothing),
    "closed": ("active", lambda w, group, _: w.close(group)),
    "moved": ("ending", moved),
    "cancelled, what runs finishes": (
        "ending",
        lambda w, group, _: w.cancel(group, cancel_running_tasks=False),
    ),
    "cancelled": ("ending", lambda w, group, _: w.cancel(group)),
    "completed by force": ("ending", lambda w, group, _: w.complete(group, force=True)),
}


def key_of(task: ClaimedTask) -> AttemptKey:
    return AttemptKey(task.task_id, task.attempt)


async def rows_of(w: World, tasks: list[ClaimedTask]) -> dict[int, dict[str, Any]]:
    found = await w.rows(
        "SELECT id, state, attempt, epoch, claim_seq FROM open_task WHERE id = ANY(%s)",
        [task.task_id for task in tasks],
    )
    return {row["id"]: row for row in found}


@pytest.mark.parametrize("verb", VERBS)
async def test_hello_moves_what_the_journal_holds_and_requeues_the_rest(
    database: str, verb: str
) -> None:
    """Any part of the claimed tasks in the journal, beside keys that fit no row; hello twice in a row."""
    state, apply = VERBS[verb]
    dice = random.Random(verb)
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 12)
        host = await w.leased_host(group)
        tasks = (await host.claim(8)).tasks
        await host.renew(started=tasks[:6])
        journalled = dice.sample(tasks, 4)
        await apply(w, group, host)
        foreign = [AttemptKey(tasks[0].task_id, 7), AttemptKey(2**62, 1)]
        keys = AttemptList.of([*map(key_of, journalled), *foreign])
        epochs = [host.epoch]
        for _ in range(2):  # the second process has not replayed either
            answer = await host.hello(journal=keys)
            lease = (await observe_manager(w.store, host.manager_id)).lease
            assert lease is not None
            assert (lease.state, lease.epoch > epochs[-1]) == (state, True)
            assert (answer.lease is not None) == (state == "active")
            epochs.append(lease.epoch)
            rows = await rows_of(w, tasks)
            for task in tasks:
                row = rows[task.task_id]
                wanted = (1, lease.epoch, 0) if task in journalled else (0, None, None)
                assert (row["state"], row["epoch"], row["claim_seq"]) == wanted
                assert row["attempt"] == task.attempt
        host.epoch = epochs[-1]
        if state == "active":
            again = (await host.claim()).tasks
            assert not {task.task_id for task in again} & {task.task_id for task in journalled}
        answer = await host.report(*map(succeeded, journalled), epoch=epochs[0])
        assert set(answer.statuses) == {"committed"}
        assert await stranded(w) == 0
        await w.check()


async def test_without_journalled_attempts_an_ending_lease_gets_no_new_epoch(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 2)
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        await w.cancel(group)
        await host.hello(journal=AttemptList.of([AttemptKey(tasks[0].task_id, 9)]))
        assert (await observe_manager(w.store, host.manager_id)).lease is None


async def test_what_was_moved_goes_back_when_the_journal_is_lost(database: str) -> None:
    """A host that dies before its replay, or whose new session does not hold the attempt."""
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 3)
        host = await w.leased_host(group)
        tasks = (await host.claim()).tasks
        await host.hello(journal=AttemptList.of(map(key_of, tasks)))
        await host.renew(held=[task.task_id for task in tasks[1:]])
        assert [row["state"] for _, row in sorted((await rows_of(w, tasks)).items())] == [0, 1, 1]
        await w.rows("UPDATE leases SET alive_until = now() WHERE state = 'active'")
        await release_lease(
            w.store,
            ReleaseRequest(manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST),
        )
        assert {row["state"] for row in (await rows_of(w, tasks)).values()} == {0}
        charged = await w.value("SELECT sum(lost_count) FROM open_task")
        assert charged == 0, "they had ended: the host was not lost while they ran"


async def lost(w: World, host: Host) -> None:
    await w.rows("UPDATE leases SET alive_until = now() WHERE epoch = %s", host.epoch)
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.LOST
    )
    await release_lease(w.store, request)


async def claimed_again(w: World, group: UUID, host: Host) -> None:
    await lost(w, host)
    other = await w.leased_host(group)
    await other.claim()


async def ended_elsewhere(w: World, group: UUID, host: Host) -> None:
    await lost(w, host)
    other = await w.leased_host(group)
    await other.finish((await other.claim()).tasks)


async def then(verb: Verb, w: World, group: UUID, host: Host) -> None:
    await lost(w, host)
    await verb(w, group, host)


async def settled(w: World, group: UUID, host: Host) -> None:
    await lost(w, host)
    await w.cancel(group, cancel_running_tasks=False)
    await w.control.discard(group)
    await w.rows("UPDATE environments SET state = 'gone'")
    await settle(w.store, group)
    assert await w.value("SELECT count(*) FROM group_live WHERE settled_at IS NOT NULL") == 1


FATES: dict[str, tuple[bool, Verb]] = {
    "nothing happened": (True, nothing),
    "the lease ends": (True, moved),
    "closed": (True, lambda w, group, _: w.close(group)),
    "requeued": (True, lambda w, _, host: lost(w, host)),
    "what runs may finish": (
        True,
        lambda w, group, _: w.cancel(group, cancel_running_tasks=False),
    ),
    "claimed again": (False, claimed_again),
    "ended elsewhere": (False, ended_elsewhere),
    "requeued, then cancelled": (
        False,
        lambda w, group, host: then(VERBS["cancelled"][1], w, group, host),
    ),
    "requeued, then completed by force": (
        False,
        lambda w, group, host: then(VERBS["completed by force"][1], w, group, host),
    ),
    "settled": (False, settled),
}


async def test_which_running_attempts_still_count(database: str) -> None:
    async with world(database) as w:
        for fate, (counts, happens) in FATES.items():
            group = await w.group(fate.replace(" ", "-").replace(",", ""))
            await w.submit(group, 2)
            host = await w.leased_host(group)
            tasks = (await host.claim()).tasks
            running = [TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in tasks]
            await happens(w, group, host)
            renewal = Renewal(incarnation=host.incarnation, epoch=host.epoch, running=running)
            answer = await renew(w.store, host.manager_id, renewal)
            assert answer.superseded == ([] if counts else running), fate
            await w.rows("DELETE FROM leases")
            await w.rows("TRUNCATE managers, task_groups, task, open_task, task_result CASCADE")


async def test_an_earlier_attempt_at_a_task_of_the_same_lease_does_not_count(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        retry = RetryPolicy(max_attempts=2)
        await w.submit_tasks(group, [TaskSubmission(command=["x"], retry=retry)])
        host = await w.leased_host(group)
        (first,) = (await host.claim()).tasks
        await host.report(failed(first, exit_code=1))
        (second,) = (await host.claim()).tasks
        assert (second.task_id, second.attempt) == (first.task_id, 2)
        one, two = (TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in (first, second))
        renewal = Renewal(incarnation=host.incarnation, epoch=host.epoch, running=[one, two])
        assert (await renew(w.store, host.manager_id, renewal)).superseded == [one]


async def test_a_host_shows_why_its_reports_wait(database: str) -> None:
    async with world(database) as w:
        host = await w.host()
        for trouble in ("1 reports are not taken: why", None):
            renewal = Renewal(incarnation=host.incarnation, report_trouble=trouble)
            await renew(w.store, host.manager_id, renewal)
            assert (await get_manager(w.store, host.manager_id)).report_trouble == trouble


async def test_an_attempt_under_a_lease_of_another_host_never_counts(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group, 1)
        host, other = await w.leased_host(group), await w.host()
        task = (await host.claim()).tasks[0]
        running = [TaskAttempt(task_id=task.task_id, attempt=task.attempt)]
        renewal = Renewal(
            incarnation=1, epoch=host.epoch, running=running, held=Held(acked_seq=1, task_ids=[])
        )
        answer = await renew(w.store, other.manager_id, renewal)
        assert answer.superseded == running
        assert (await rows_of(w, [task]))[task.task_id]["state"] == 1
