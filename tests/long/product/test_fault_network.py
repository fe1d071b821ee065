"""The network between agent and API: answers that get lost or come late, partitions short and long.

Real API, PostgreSQL, Temporal and agents; a wire of the test in between (protocol P2-P5, P9).
"""

import pytest

from mitosis.contracts.lifecycle import EnvironmentState, TaskGroupResult
from tests.support.fleet import Diary, Fleet, FleetHost, diary, it, shared_fleet

__all__ = ["diary", "it", "shared_fleet"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

CLAIM, REPORT, RENEW = "/managers/tasks/claim", "/managers/tasks/report", "/managers/heartbeat"


async def until_lost(it: Fleet, host: FleetHost) -> None:
    async def lost() -> bool:
        view = await host.view()
        return view.lease is None and not view.online

    await it.until(lost)


async def renewed_twice(it: Fleet, host: FleetHost) -> None:
    """The second of two renewals was asked after this was called."""
    path = f"/api/v1{RENEW}"
    before = host.wire.answered[path]
    await it.until(lambda: host.wire.answered[path] >= before + 2)


async def open_rows(it: Fleet) -> list[tuple[int, int]]:
    """State and attempt of what is unfinished, oldest first: 0 ready, 1 claimed."""
    rows = await it.rows("SELECT state, attempt FROM open_task ORDER BY id")
    return [(row["state"], row["attempt"]) for row in rows]


@pytest.mark.spec("S000-141", "S000-152")
async def test_every_answer_of_the_api_may_get_lost_after_its_commit(
    it: Fleet, diary: Diary
) -> None:
    """Whatever an agent asks, the answer is lost twice, from the first hello to the goodbye."""
    host = await it.host(start=False)
    group = await it.group(
        *[diary.task(f"t{n}") for n in range(20)],
        environment_setup_hook=diary.hook("setup"),
        environment_teardown_hook=diary.hook("teardown"),
    )
    ends = ["/hello", "/take", f"/environments/{group}", CLAIM, REPORT, RENEW, "/goodbye"]
    for end in ends:
        host.wire.lose_answers[end] = 2
    await host.begin()
    info = await it.settled(group)
    await it.until(lambda: host.wire.lost[RENEW] == 2)
    assert await host.stop() == 0
    assert info.result is TaskGroupResult.SUCCESS
    assert await it.attempts(group) == [1] * 20
    for name in ("setup", "teardown", *(f"t{n}" for n in range(20))):
        assert (diary.began(name), diary.ended(name)) == (1, 1), name
    assert {end: host.wire.lost[end] for end in ends[:-1]} == dict.fromkeys(ends[:-1], 2)
    assert host.wire.lost["/goodbye"] >= 1


async def test_what_is_held_is_told_whole_when_contact_comes_back(it: Fleet, diary: Diary) -> None:
    """An exchange that left out what runs would have it claimed, and run, a second time (P3)."""
    host = await it.host()
    tasks = [diary.task(f"t{n}", wait=True) for n in range(4)]
    group = await it.group(*tasks, host_lost_after="60s")
    await it.until(lambda: diary.began("t0") and diary.began("t1"))

    async def t2_was_claimed() -> bool:  # and waits in the agent
        return [attempt for _, attempt in await open_rows(it)] == [1, 1, 1, 0]

    await it.until(t2_was_claimed)
    host.wire.lose_answers[RENEW] = 2
    await it.until(lambda: host.wire.lost[RENEW] == 2)
    await it.until_claimed(2)  # t2 was returned, since nothing on this host ends
    await renewed_twice(it, host)
    assert await open_rows(it) == [(1, 1), (1, 1), (0, 1), (0, 0)]
    diary.go(*(f"t{n}" for n in range(4)))
    info = await it.settled(group)
    assert info.tasks_succeeded == 4
    # A claim raises the attempt, a return keeps it (P2); no failure is counted.
    assert await it.attempts(group) == [1, 1, 2, 1]
    assert [diary.began(f"t{n}") for n in range(4)] == [1] * 4


@pytest.mark.parametrize("ending", ["cancel", "force", "lost"])
async def test_a_claim_that_is_answered_after_the_ending_starts_nothing(
    it: Fleet, diary: Diary, ending: str
) -> None:
    """Committed under a live lease, and on the way while the lease ends (between commit and answer)."""
    host = await it.host()
    group = await it.group(diary.task("first"))
    await it.until(lambda: diary.ended("first"))
    await it.until_claimed(0)  # its report is committed too
    host.wire.hold_answers(CLAIM)
    await it.client.submit(group, [diary.task("late")])
    await it.until(lambda: host.wire.holding[CLAIM])
    assert await open_rows(it) == [(1, 1)]
    if ending == "lost":
        await it.rows("UPDATE leases SET alive_until = now() - interval '1 s'")
        host.wire.cut()
        await until_lost(it, host)
        host.wire.mend()
    else:
        verb = (
            it.client.cancel(group) if ending == "cancel" else it.client.complete(group, force=True)
        )
        await verb
        await renewed_twice(it, host)  # now the agent knows
    host.wire.let_go(CLAIM)
    if ending == "lost":  # and then it is claimed again, by the same host, and runs once
        await it.until(lambda: diary.ended("late"))
        assert (await it.settled(group)).tasks_succeeded == 2
        assert await it.attempts(group) == [1, 2]
        assert diary.began("late") == 1
    else:
        info = await it.client.wait(group)
        assert (info.tasks_succeeded, info.tasks_cancelled) == (1, 1)
        assert diary.began("late") == 0


@pytest.mark.spec("S000-152", "S000-128", "S002-268")
async def test_a_partition_shorter_than_the_clock_repeats_nothing(it: Fleet, diary: Diary) -> None:
    """However long it takes to cut it off, the host holds the task that no worker has begun."""
    host, other = await it.host(start=False), await it.host(start=False)
    for one in (host, other):
        one.look_seconds = 600.0
        await one.start()
    group = await it.group(
        *[diary.task(f"t{n}", wait=True) for n in range(3)],
        host_lost_after="60s",
        max_managers=1,
    )
    await it.until(lambda: diary.began("t0") and diary.began("t1"))
    await it.until_claimed(3)
    busy = host if (await host.view()).lease else other
    await renewed_twice(it, busy)  # by then the answer that brought t2 is there too
    busy.wire.cut()
    diary.go("t0", "t1", "t2")
    await it.until(lambda: diary.ended("t0") and diary.ended("t1") and diary.ended("t2"))
    journal = busy.folder / "state" / "journal"
    await it.until(lambda: journal.read_bytes().count(b"MJ01") >= 3)
    busy.wire.mend()
    assert (await it.settled(group)).tasks_succeeded == 3
    assert await it.attempts(group) == [1] * 3
    assert [diary.began(f"t{n}") for n in range(3)] == [1] * 3
    await it.until(lambda: not journal.read_bytes().startswith(b"MJ01"))


async def test_a_report_from_a_partition_counts_while_nobody_has_claimed_again(
    it: Fleet, diary: Diary
) -> None:
    """The host is lost and its task ready again; nobody else is there to take it (P2)."""
    host = await it.host()
    group = await it.group(*[diary.task(f"t{n}", wait=True) for n in range(3)])
    await it.until(lambda: diary.began("t0") and diary.began("t1"))
    await it.until_claimed(3)
    host.wire.cut()
    await until_lost(it, host)
    assert await open_rows(it) == [(0, 1), (0, 1), (0, 1)]
    diary.go("t0", "t1")
    await it.until(lambda: diary.ended("t0") and diary.ended("t1"))
    await it.until(lambda: host.said("lease.fenced"))
    assert diary.began("t2") == 0, "a fenced host starts nothing"
    await it.client.close_group(group)
    host.wire.hold_answers("/take")  # the next lease waits until the old results are in
    host.wire.mend()

    async def reported() -> bool:
        return (await it.client.group(group)).tasks_succeeded >= 2

    await it.until(reported)
    host.wire.let_go("/take")
    diary.go("t2")
    info = await it.client.wait(group)
    assert info.tasks_succeeded == 3
    assert (await it.attempts(group))[:2] == [1, 1]
    assert [diary.began(f"t{n}") for n in range(3)] == [1] * 3


@pytest.mark.spec("S000-141")
async def test_a_report_from_a_partition_is_too_late_after_another_claim(
    it: Fleet, diary: Diary
) -> None:
    """Both ran it to the end; the one result is of the host that holds the task (P2, P4)."""
    host = await it.host()
    group = await it.group(
        diary.task("t", wait=True),
        workers=1,
        environment_setup_hook=diary.hook("setup"),
        environment_teardown_hook=diary.hook("teardown"),
    )
    await it.until(lambda: diary.began("t"))
    await started(it)
    host.wire.cut()
    other = await it.host()
    await it.until(lambda: diary.began("t") == 2)
    assert await open_rows(it) == [(1, 2)]
    assert [e.state for e in (await host.view()).environments] == [EnvironmentState.OWED]
    diary.go("t")
    await it.until(lambda: diary.ended("t") == 2)
    host.wire.mend()
    info = await it.settled(group)
    assert (info.tasks_succeeded, await it.attempts(group)) == (1, [2])
    await it.until(lambda: diary.ended("teardown") == 2)
    await it.until(lambda: host.said("report.superseded"))
    assert (diary.began("setup"), diary.began("teardown")) == (2, 2)
    assert other.said("session.over")


async def started(it: Fleet) -> None:
    """Until PostgreSQL knows that something has been running for a second."""

    async def known() -> bool:
        return bool(await it.rows("SELECT 1 FROM open_task WHERE started_at IS NOT NULL"))

    await it.until(known)


async def test_a_cancelled_group_settles_without_the_host_behind_the_partition(
    it: Fleet, diary: Diary
) -> None:
    """Its late result is recorded if it comes before the settlement, else not; the task ends there."""
    host = await it.host()
    group = await it.group(diary.task("t", wait=True), workers=1)
    await it.until(lambda: diary.began("t"))
    host.wire.cut()
    await it.client.cancel(group)
    info = await it.client.wait(group)
    assert (info.result, info.tasks_cancelled) == (TaskGroupResult.CANCELLED, 1)
    host.wire.mend()
    await it.until(lambda: host.said("session.over"))
    assert (await it.client.group(group)).tasks_cancelled == 1
