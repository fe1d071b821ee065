"""Which other hosts count when tasks fail on a host: those that could soon run its tasks (C-33)."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.scheduling.binding import binding_mismatch
from mitosis.store.groups.views import read_group
from mitosis.store.leases.doubt import SQL, judge_groups
from mitosis.store.leases.failures import record_failure
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.release import release_lease
from tests.integration.store.leases.test_doubt import fail_all, many, phase
from tests.support.campaigns import Host, World, world
from tests.support.examples import examples

EXCLUSIVE = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
TWO_CORES = WorkerAllocationPlan(worker_count=2, cpu_binding=EXCLUSIVE)
OTHERS = {
    "free": True,
    "too small": False,
    "workers not started": True,
    "workers not started for the fifth time": True,
    "workers not started for the fifth time and a while": False,
    "workers not started, tried again now": True,
    "no progress": True,
    "no progress for the fifth time": False,
    "setup failed": False,
    "unreachable": True,
    "unreachable, and for another group before": False,
    "no progress before a change of the hook": True,
    "unreachable for the fifth time": True,
    "unreachable for the fifth time and a while": False,
    "working elsewhere": True,
    "working elsewhere, at the end": True,
    "silent elsewhere": True,
    "silent elsewhere for long": False,
    "taken elsewhere": True,
    "drained elsewhere, at the end": False,
    "unreachable, and long ago for another group": True,
    "offered elsewhere": True,
    "ending elsewhere": True,
    "ending elsewhere, with a long task": False,
    "tearing down": True,
    "tearing down for long": False,
}
"""Another host in contact → whether it can be expected to run tasks of the group."""


async def fail_before(w: World, other: str, host: Host, group: UUID) -> None:
    """Record what that host has failed at."""
    kinds = {
        "workers": HostFailureKind.WORKERS_NOT_STARTED,
        "no progress": HostFailureKind.NO_PROGRESS,
        "unreachable": HostFailureKind.UNREACHABLE,
        "setup": HostFailureKind.SETUP_FAILED,
    }
    times = 5 if "fifth" in other else 1
    for kind in [kind for word, kind in kinds.items() if other.startswith(word)] * times:
        number = await w.value("SELECT id FROM managers WHERE uuid = %s", host.manager_id)
        group_number = await w.value("SELECT id FROM task_groups WHERE uuid = %s", group)
        async with w.store.database.transaction() as connection:
            await record_failure(connection, number, group_number, kind, "of a test")
        if "long ago" in other:
            await w.rows(
                "UPDATE host_failures SET failed_at = now() - interval '200 s',"
                " next_at = now() - interval '70 s'"
            )
            later = await w.value(
                "SELECT id FROM task_groups WHERE uuid = %s", await w.group("later")
            )
            async with w.store.database.transaction() as connection:
                await record_failure(connection, number, later, kind, "of a test")
        if "again" in other:
            await w.rows("UPDATE host_failures SET next_at = now()")
        if "a while" in other:  # the pauses of 10, 20, 40 and 80 s, and 31 s of the next
            await w.rows("UPDATE host_failures SET failed_at = now() - interval '31 s'")
        if "change of the hook" in other:
            await w.rows("UPDATE host_failures SET hook = md5('of before')")
        if "for another group before" in other:
            before = await w.value(
                "SELECT id FROM task_groups WHERE uuid = %s", await w.group("before")
            )
            await w.rows(
                "INSERT INTO host_failures (group_id, manager_id, kind, reason, incarnation, hook,"
                " failed_at, next_at) SELECT %s, manager_id, kind, reason, incarnation, hook,"
                " now() - interval '181 s', now() FROM host_failures",
                before,
            )


async def become(w: World, other: str, host: Host, group: UUID) -> None:
    """Let something happen to the host while it works for another group."""
    if "taken" in other:
        await w.rows(
            "UPDATE leases SET draining = true, freed_for = (SELECT id FROM task_groups WHERE uuid = %s),"
            " contested_at = now(), ask_back_at = now() + interval '300 s' WHERE epoch = %s",
            *(group, host.epoch),
        )
    if "silent" in other:  # for less than its loss takes, by ``host_lost_after``
        await w.rows(
            "UPDATE manager_live SET last_contact_at = now() - make_interval(secs => %s) FROM managers"
            " WHERE id = manager_id AND uuid = %s",
            *(181 if "long" in other else 100, host.manager_id),
        )


async def beside(w: World, other: str, group: UUID) -> Host:
    """Add that host."""
    host = await w.host(hello=False)
    await host.hello(cores=(0,) if other == "too small" else (0, 1))
    await fail_before(w, other, host, group)
    if "elsewhere" in other:
        elsewhere = await w.group("elsewhere")
        await w.submit(elsewhere, 1 if "end" in other else 2)
        await assign_round(w.store)
        if "offered" in other:
            return host
        await host.take(elsewhere)
        await host.claim(1)
        if "drained" in other:
            await w.rows("UPDATE managers SET draining = true WHERE uuid = %s", host.manager_id)
        if "ending" in other:
            await w.rows("UPDATE leases SET state = 'ending' WHERE epoch = %s", host.epoch)
        await become(w, other, host, group)
        age = 181 if "long" in other or "taken" in other else 20
        await w.rows(
            "UPDATE open_task SET started_at = now() - make_interval(secs => %s) WHERE epoch = %s",
            age,
            host.epoch,
        )
    if "tearing" in other:
        elsewhere = await w.group("elsewhere")
        await w.submit(elsewhere, 1)
        await assign_round(w.store)
        await host.take(elsewhere)
        await w.rows(
            "UPDATE leases SET state = 'ended', ended_at = now() WHERE epoch = %s", host.epoch
        )
        await host.environment(elsewhere, "tear_down")
        if "long" in other:
            await w.rows("UPDATE environments SET changed_at = now() - interval '181 s'")
    return host


@pytest.mark.spec("C-33")
@pytest.mark.parametrize(("other", "expected"), OTHERS.items())
async def test_failures_are_final_where_no_other_host_could_run_the_tasks_soon(
    database: str, other: str, expected: bool
) -> None:
    """Else the only host of a group gets nothing for ten minutes, and nobody tries its tasks."""
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=TWO_CORES)
        await many(w, group, 9)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group)
        await beside(w, other, group)
        await fail_all(host, (await host.claim(8)).tasks)
        await judge_groups(w.store)
        assert (await read_group(w.store, group)).tasks_failed == (0 if expected else 8)
        assert (await phase(w) == "suspected") == expected
        assert len((await host.claim(8)).tasks) == (0 if expected else 1)


async def known_elsewhere(w: World, host: Host, phase_there: str) -> None:
    """Let that be known about the host for another task group."""
    group = await w.value("SELECT id FROM task_groups WHERE uuid = %s", await w.group("known"))
    past = phase_there == "suspected before"
    await w.rows(
        "INSERT INTO host_failures (group_id, manager_id, kind, phase, reason, incarnation, hook, next_at)"
        " SELECT %s, id, 'tasks_failed', %s, 'of a test', incarnation, '',"
        " now() + make_interval(secs => %s) FROM managers WHERE uuid = %s",
        group,
        phase_there.removesuffix(" before"),
        -1 if past else 100,
        host.manager_id,
    )


@pytest.mark.spec("C-33")
@pytest.mark.parametrize("known", [None, "quarantined", "suspected", "suspected before"])
async def test_a_host_is_doubted_while_others_are_busy(database: str, known: str | None) -> None:
    """Several task groups at once: the one good host works for the first, the broken one fails the second."""
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=TWO_CORES)
        await many(w, group, 9)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group)
        good = await beside(w, "working elsewhere", group)
        if known is not None:
            await known_elsewhere(w, host, known)
        await fail_all(host, (await host.claim(8)).tasks)
        await judge_groups(w.store)
        assert (await read_group(w.store, group)).tasks_failed == 0
        elsewhere = await w.value("SELECT uuid FROM task_groups WHERE name = 'elsewhere'")
        await w.cancel(elsewhere)
        request = ReleaseRequest(
            manager_id=good.manager_id, epoch=good.epoch, reason=ReleaseReason.GROUP_ENDED
        )
        await release_lease(w.store, request)
        await good.clean(elsewhere)
        await assign_round(w.store)
        await good.take(group)
        while tasks := (await good.claim(9)).tasks:
            await good.finish(tasks)
            await judge_groups(w.store)
        assert (await read_group(w.store, group)).tasks_succeeded == 9


@pytest.mark.spec("C-33")
async def test_a_suspected_host_is_believed_after_three_minutes_in_which_others_are_busy(
    database: str,
) -> None:
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=TWO_CORES)
        await many(w, group, 9)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group)
        await beside(w, "working elsewhere", group)
        await fail_all(host, (await host.claim(8)).tasks)
        for seconds, failed in ((170, 0), (181, 5)):
            await w.rows(
                "UPDATE host_failures SET failed_at = now() - make_interval(secs => %s)", seconds
            )
            await judge_groups(w.store)
            assert (await read_group(w.store, group)).tasks_failed == failed
        assert await phase(w) == "excused"


@pytest.mark.spec("C-33")
async def test_a_suspected_host_is_doubted_until_an_idle_one_may_be_taken(database: str) -> None:
    """A host without work keeps its lease for three minutes or more: as long as others are awaited."""
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=TWO_CORES)
        await many(w, group, 9)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group)
        good = await beside(w, "working elsewhere, at the end", group)
        await good.finish(list(good.held.values()))
        await fail_all(host, (await host.claim(8)).tasks)
        await w.rows(
            "UPDATE leases SET last_claim_at = last_claim_at - interval '170 s' WHERE epoch = %s",
            good.epoch,
        )
        await assign_round(w.store)
        await w.rows("UPDATE host_failures SET failed_at = now() - interval '181 s'")
        for seconds, failed in ((0, 0), (190, 0), (200, 5)):
            idle = await w.value(
                "UPDATE leases SET idle_until = idle_until - make_interval(secs => %s)"
                " WHERE epoch = %s RETURNING extract(epoch FROM idle_until - now())::float8",
                *(seconds, good.epoch),
            )
            assert idle is not None
            await judge_groups(w.store)
            assert (await read_group(w.store, group)).tasks_failed == failed


@pytest.mark.spec("C-33")
async def test_a_suspected_host_is_doubted_until_one_is_free_that_was_taken_for_its_group(
    database: str,
) -> None:
    """Until it is asked back it may run tasks that are longer than others are awaited."""
    async with world(database) as w:
        group = await w.group(worker_allocation_plan=TWO_CORES)
        await many(w, group, 9)
        host = await w.host()
        await assign_round(w.store)
        await host.take(group)
        taken = await beside(w, "taken elsewhere", group)
        await fail_all(host, (await host.claim(8)).tasks)
        await w.rows("UPDATE host_failures SET failed_at = now() - interval '181 s'")
        ages = ((0, "active", 0), (300, "active", 0), (0, "ending", 0), (170, "ending", 0))
        for seconds, state, failed in (*ages, (20, "ending", 5)):
            await w.rows(
                "UPDATE leases SET ask_back_at = ask_back_at - make_interval(secs => %s), state = %s"
                " WHERE epoch = %s",
                *(seconds, state, taken.epoch),
            )
            await judge_groups(w.store)
            assert (await read_group(w.store, group)).tasks_failed == failed, (seconds, state)


@pytest.mark.parametrize(("seconds", "expected"), [(20, 0), (181, 8)])
async def test_a_host_is_awaited_while_it_tears_down_the_group_itself(
    database: str, seconds: int, expected: int
) -> None:
    """It gets no offer before."""
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 9)
        hosts = [await w.host(), await w.host()]
        await assign_round(w.store)
        for host in hosts:
            await host.take(group)
        bad, other = hosts
        await w.rows(
            "UPDATE leases SET state = 'ended', ended_at = now() WHERE epoch = %s", other.epoch
        )
        await other.environment(group, "tear_down")
        await w.rows(
            "UPDATE environments SET changed_at = now() - make_interval(secs => %s)"
            " WHERE state = 'tearing_down'",
            seconds,
        )
        await fail_all(bad, (await bad.claim(8)).tasks)
        assert (await read_group(w.store, group)).tasks_failed == expected


async def test_a_host_does_not_wait_for_itself(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await many(w, group, 9)
        host = await w.leased_host(group)
        await fail_all(host, (await host.claim(8)).tasks[:2])
        assert (await read_group(w.store, group)).tasks_failed == 2


CORES = st.lists(st.integers(0, 3), max_size=4, unique=True)
BINDINGS = st.none() | st.builds(
    CpuBinding,
    strategy=st.sampled_from(CpuBindingStrategy),
    cores=st.none() | CORES.filter(bool).map(tuple),
    cores_per_worker=st.none() | st.integers(1, 2),
)


async def test_the_statement_and_the_scheduler_agree_on_which_host_fits(database: str) -> None:
    cases: list[tuple[WorkerAllocationPlan, list[int]]] = []

    @settings(max_examples=examples(60), database=None, derandomize=True)
    @given(
        st.builds(WorkerAllocationPlan, worker_count=st.integers(1, 4), cpu_binding=BINDINGS), CORES
    )
    def collect(plan: WorkerAllocationPlan, cores: list[int]) -> None:
        cases.append((plan, cores))

    collect()
    statement = (
        f"SELECT {SQL['fits']} AS fits FROM (SELECT %s::int[] AS cores, 'm' AS machine_id) AS m,"  # noqa: S608 - of doubt.sql
        " (SELECT %s::jsonb AS worker_allocation_plan) AS g"
    )
    async with world(database) as w:
        for plan, cores in cases:
            (row,) = await w.rows(statement, cores, plan.model_dump_json())
            why = binding_mismatch(plan.worker_count, plan.cpu_binding, tuple(cores))
            assert row["fits"] == (why is None), (plan, cores, why)
