"""What ends with the registration of a service: its leases, what it holds, and who is charged."""

import pytest

from mitosis.contracts.wire import Outcome
from mitosis.contracts.worker_services import HeldTask
from mitosis.store.groups.endings import discard_chunk, finalize, settle
from mitosis.store.leases.silent_services import end_silent_registrations
from tests.support.campaigns import World, world
from tests.support.worker_services import Service, healthy, service_group, task


async def open_rows(w: World) -> list[tuple[int, int, int]]:
    """State, attempt and losses of each unfinished task."""
    rows = await w.rows("SELECT state, attempt, lost_count FROM open_task ORDER BY id")
    return [(row["state"], row["attempt"], row["lost_count"]) for row in rows]


async def live_leases(w: World) -> int:
    return int(await w.value("SELECT count(*) FROM leases WHERE state <> 'ended'"))


@pytest.mark.parametrize(("end", "losses"), [("goodbye", 0), ("silence", 1), ("next", 1)])
async def test_the_end_of_a_registration_gives_back_what_it_holds(
    database: str, end: str, losses: int
) -> None:
    async with world(database) as w:
        await service_group(w, count=2)
        await service_group(w, "other", count=1)
        service = await healthy(w, "one", slots=3)
        held = await service.claim()
        assert (len(held), await live_leases(w)) == (3, 2)
        if end == "goodbye":
            await service.goodbye()
        elif end == "silence":
            await service.ago(601)
            await end_silent_registrations(w.store)
        else:
            await healthy(w, "one", slots=3)
        assert await open_rows(w) == [(0, 1, losses)] * 3
        assert await live_leases(w) == 0
        other = await healthy(w, "two", slots=3)
        again = await other.claim()
        assert {one.attempt for one in again} == {2}
        answer = await service.report(*held)
        assert [status.value for status in answer.statuses] == ["superseded"] * 3
        assert answer.standing.value == ("superseded" if end == "next" else "over")
        statuses = (await other.report(*again)).statuses
        assert [status.value for status in statuses] == ["committed"] * 3
        await w.check()


async def test_a_late_result_counts_until_the_task_is_claimed_again(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=2)
        service, other = await healthy(w, "one", slots=2), await healthy(w, "two")
        first, second = await service.claim()
        await service.goodbye()
        (taken,) = await other.claim()
        assert taken.task_id == first.task_id
        foreign = (await other.report(second)).statuses
        assert [status.value for status in foreign] == ["superseded"]
        answer = await service.report(first, second)
        assert [status.value for status in answer.statuses] == ["superseded", "committed"]
        again = (await service.report(second)).statuses
        assert [status.value for status in again] == ["duplicate"]
        await other.report(taken)
        await w.check()


async def test_the_next_process_keeps_what_its_journal_has(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=3)
        service = await healthy(w, "one", slots=3, incarnation=1)
        first, second, third = await service.claim()
        journal = [
            HeldTask(task_id=first.task_id, attempt=first.attempt).model_dump(mode="json"),
            HeldTask(task_id=second.task_id, attempt=7).model_dump(mode="json"),
        ]
        following = await healthy(w, "one", slots=3, incarnation=2, unreported=journal)
        assert await open_rows(w) == [(1, 1, 0), (0, 1, 1), (0, 1, 1)]
        other = await healthy(w, "two", slots=3)
        assert {one.task_id for one in await other.claim()} == {second.task_id, third.task_id}
        statuses = (await following.report(first)).statuses
        assert [status.value for status in statuses] == ["committed"]
        await w.check()


async def test_what_is_carried_over_is_given_back_when_the_next_process_dies_too(
    database: str,
) -> None:
    async with world(database) as w:
        await service_group(w, count=1)
        service = await healthy(w, "one", incarnation=1)
        (first,) = await service.claim()
        journal = [{"task_id": str(first.task_id), "attempt": 1}]
        following = await healthy(w, "one", incarnation=2, unreported=journal)
        (returned,) = await following.claim()  # the journal was lost: it does not hold it
        assert (returned.task_id, returned.attempt) == (first.task_id, 1)
        await healthy(w, "one", incarnation=3)
        assert await open_rows(w) == [(0, 1, 1)]


async def test_a_task_that_ends_its_process_each_time_is_poison(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=1)
        for _ in range(3):
            service = await healthy(w, "one")
            assert len(await service.claim()) == 1
        await healthy(w, "one")
        assert await open_rows(w) == []
        (row,) = await w.rows(
            "SELECT state, kind, detail ->> 'message' AS message FROM task_result"
        )
        assert (row["state"], row["kind"]) == ("failed", "host_lost")
        assert row["message"].startswith("poison: the process of its worker service was lost")
        await w.check()


async def ended(w: World, service: Service) -> None:
    """Report everything that the service holds as it is told to stop."""
    stop = (await service.heartbeat()).stop
    held = [service.held[one.task_id] for one in stop if not one.superseded]
    await service.report(*held, outcome=Outcome.CANCELLED)


async def test_a_cancelled_group_settles_when_its_services_have_answered(database: str) -> None:
    async with world(database) as w:
        group = await service_group(w, count=4, cancel_grace_seconds=7)
        service = await healthy(w, "one", slots=2)
        await service.claim()
        assert (await service.heartbeat()).stop == ()
        await w.cancel(group, reason="no longer needed")
        await discard_chunk(w.store, group)
        assert await service.claim() == ()
        stop = (await service.heartbeat()).stop
        assert {one.task_id for one in stop} == set(service.held)
        assert {(one.grace_seconds, one.reason) for one in stop} == {(7.0, "no longer needed")}
        assert await settle(w.store, group) is None
        await ended(w, service)
        result = await settle(w.store, group)
        assert result == "cancelled"
        assert await live_leases(w) == 0
        assert await w.value("SELECT cancelled FROM group_live") == 4
        await w.check()


async def test_an_answer_that_was_lost_before_the_cancel_is_returned_to_be_stopped(
    database: str,
) -> None:
    async with world(database) as w:
        group = await service_group(w, count=1)
        service = await healthy(w, "one")
        await service.ask()
        await w.cancel(group)
        (one,) = await service.claim()
        assert one.stop
        await service.report(one, outcome=Outcome.CANCELLED)
        assert await settle(w.store, group) == "cancelled"


async def test_a_closed_group_completes_and_settles_without_waiting_for_leases(
    database: str,
) -> None:
    async with world(database) as w:
        group = await service_group(w, count=1)
        service = await healthy(w, "one")
        (one,) = await service.claim()
        await w.close(group)
        await service.report(one)
        await finalize(w.store, group)
        assert await settle(w.store, group) == "success"
        assert await live_leases(w) == 0
        assert await service.claim() == ()


async def test_an_attempt_that_was_claimed_again_is_to_be_stopped(database: str) -> None:
    async with world(database) as w:
        await service_group(w, count=1)
        service = await healthy(w, "one")
        (one,) = await service.claim()
        await service.ago(601)
        await end_silent_registrations(w.store)
        again = await healthy(w, "one")
        again.held = dict(service.held)
        assert (await again.heartbeat()).stop == ()  # its result counts still
        other = await healthy(w, "two", task())
        await other.claim()
        (stop,) = (await again.heartbeat()).stop
        assert (stop.task_id, stop.superseded) == (one.task_id, True)
