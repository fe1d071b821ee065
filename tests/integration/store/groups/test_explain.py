"""`explain` by the decision: every condition with its values, and the smallest change, which then works."""

from uuid import UUID

import pytest

from mitosis.contracts.errors import Conflict
from mitosis.contracts.explain import Explanation
from mitosis.contracts.http import TaskGroupUpdate
from mitosis.contracts.ids import task_uuid
from mitosis.store.groups.definition import update_group
from mitosis.store.groups.explain import explain_group, explain_task
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.draining import drain_manager, resume_manager
from mitosis.store.managers.explain import explain_manager
from mitosis.store.managers.views import observe_manager
from tests.support.campaigns import Host, World, world


async def busy_world(w: World) -> tuple[Host, Host]:
    """A host that works for another group, and one that drains and lacks a tag."""
    other = await w.group("other", tags={"gpu"}, max_managers=1)  # also if this host seems silent
    await w.submit(other, 2)
    busy = await w.host(tags=["gpu"])
    await assign_round(w.store)
    await busy.take(other)
    await busy.renew(started=(await busy.claim(1)).tasks)
    draining = await w.host(tags=["x86"])
    await drain_manager(w.store, draining.manager_id)
    return busy, draining


def lines(explanation: Explanation) -> list[list[str]]:
    return [[one.line for one in host.obstacles] for host in explanation.hosts]


async def test_each_host_has_all_its_obstacles_with_their_values(database: str) -> None:
    async with world(database) as w:
        await busy_world(w)
        group = await w.group("waiting", priority=-1, tags={"gpu"})
        await w.submit(group)
        explained = await explain_group(w.store, group)
        assert lines(explained) == [
            ["works for other, and priority -1 is not above 0"],
            [
                "lacks gpu; the task group needs all of gpu",
                "is draining: it finishes what it runs and takes nothing new until it is resumed",
            ],
        ]
        assert [(host.code, host.line) for host in explained.hosts] == [
            ("busy", "works for other, and priority -1 is not above 0"),
            ("tags", "lacks gpu; the task group needs all of gpu"),
        ], "the first obstacle is the reason of the host, and says more than that it is busy"
        assert explained.change is not None


@pytest.mark.parametrize(
    ("spec", "tasks", "code", "line"),
    [
        (
            {"max_managers": 1},
            50,
            "max_managers",
            "is free, but is not needed: the task group has 1 of at most 1 hosts;"
            " to use it: raise max_managers of working to 2",
        ),
        (
            {},
            1,
            "enough",
            "is free, but is not needed: the task group has 1 of the 1 hosts that it can use; 1 task is"
            " ready, and a host is used for each 2, 2 for its worker;"
            " to use it: submit 2 more tasks to working",
        ),
    ],
)
async def test_a_free_host_that_is_left_over_has_the_reason_and_what_would_use_it(
    database: str, spec: dict[str, int], tasks: int, code: str, line: str
) -> None:
    async with world(database) as w:
        group = await w.group("working", **spec)
        await w.submit(group, tasks)
        hosts = [await w.host(), await w.host()]
        await assign_round(w.store)
        taken = {row["manager_id"] for row in await w.rows("SELECT manager_id FROM leases")}
        assert len(taken) == 1
        explained = await explain_group(w.store, group)
        (free,) = [host for host in explained.hosts if host.code not in ("offered", "setup")]
        assert (free.code, free.line) == (code, line)
        assert [one.code for one in free.obstacles] == [code]
        if spec:
            await update_group(w.store, group, TaskGroupUpdate(max_managers=2))
        else:
            await w.submit(group, 2)
        await assign_round(w.store)
        assert await w.value("SELECT count(*) FROM leases WHERE state = 'offered'") == len(hosts)


@pytest.mark.parametrize("reopens", [False, True])
async def test_a_closed_group_is_to_be_reopened_unless_a_submit_does_it(
    database: str, reopens: bool
) -> None:
    async with world(database) as w:
        group = await w.group("closed", reopen_on_submit=reopens)
        await w.submit(group)
        await w.host()
        await w.host()
        await assign_round(w.store)
        await w.close(group)
        explained = await explain_group(w.store, group)
        free = next(host for host in explained.hosts if host.code == "enough")
        ask = "submit 2 more tasks to closed"
        assert free.line.endswith(ask if reopens else f"reopen closed and {ask[:-6]}it")
        if not reopens:
            with pytest.raises(Conflict, match="closed"):
                await w.submit(group, 2)
            await w.reopen(group)
        await w.submit(group, 2)
        await assign_round(w.store)
        assert await w.value("SELECT count(*) FROM leases WHERE state = 'offered'") == 2


async def test_a_group_that_a_host_is_freed_for_says_so_and_until_when(database: str) -> None:
    async with world(database) as w:
        other = await w.group("other")
        await w.submit(other, 2)
        busy = await w.host()
        await assign_round(w.store)
        await busy.take(other)
        await busy.renew(started=(await busy.claim(1)).tasks)
        await w.rows("UPDATE leases SET affinity_until = now()")
        group = await w.group("waiting", priority=5, max_managers=1)
        await w.submit(group)
        await assign_round(w.store)
        explained = await explain_group(w.store, group)
        assert (explained.code, explained.change) == ("freed", None)
        assert explained.line == (
            "host is being freed for it: it ends its tasks of other first,"
            " and gives back in 5 min those that have not started"
        )


async def test_more_ready_tasks_than_were_counted_count_by_their_duration_too(
    database: str,
) -> None:
    """Of 500 tasks only some are counted as ready; a second of work each pays for several hosts."""
    async with world(database) as w:
        group = await w.group("many")
        await w.submit(group, 500)
        for _ in range(3):
            await w.host()
        await w.rows("UPDATE group_live SET runs = 10, run_seconds = 10")
        await assign_round(w.store)
        assert await w.value("SELECT count(*) FROM leases") == 3


async def test_a_group_that_works_needs_no_change_although_more_hosts_would_help(
    database: str,
) -> None:
    async with world(database) as w:
        await busy_world(w)
        group = await w.group("working", priority=-1, tags={"gpu"})
        await w.submit(group, 50)
        waiting = await explain_group(w.store, group)
        assert (waiting.waits, waiting.change is None) == (True, False)
        host = await w.host(tags=["gpu"])
        await assign_round(w.store)
        await host.take(group)
        await host.renew(started=(await host.claim(1)).tasks)
        working = await explain_group(w.store, group)
        assert (working.waits, working.change) == (False, None)
        assert "works for other, and priority -1 is not above 0" in [
            line for host_lines in lines(working) for line in host_lines
        ]


@pytest.mark.parametrize("what", ["priority", "drain"])
async def test_the_smallest_change_makes_a_host_serve_the_group(database: str, what: str) -> None:
    async with world(database) as w:
        busy, draining = await busy_world(w)
        group = await w.group("waiting", tags={"gpu" if what == "priority" else "x86"}, priority=-1)
        await w.submit(group)
        if what == "priority":
            await w.rows("UPDATE leases SET affinity_until = now() + interval '2 min'")
            change = (await explain_group(w.store, group)).change
            assert change is not None
            assert "set the priority of waiting to 0" in change
            assert "the affinity of the lease on" in change
            await update_group(w.store, group, TaskGroupUpdate(priority=0))
            await w.rows("UPDATE leases SET affinity_until = now()")
            await assign_round(w.store)
            assert await w.value("SELECT count(*) FROM leases WHERE freed_for IS NOT NULL") == 1
            assert not (await busy.claim()).tasks
        else:
            explained = await explain_group(w.store, group)
            name = next(h.manager_name for h in explained.hosts if h.code == "draining")
            assert explained.change == f"end the drain of {name}"
            await resume_manager(w.store, draining.manager_id)
            await assign_round(w.store)
            lease = (await observe_manager(w.store, draining.manager_id)).lease
            assert lease is not None
            assert lease.task_group_name == "waiting"


async def test_a_host_without_work_needs_one_task_and_no_other_host(database: str) -> None:
    async with world(database) as w:
        group = await w.group("drained", tags={"gpu"})
        await w.submit(group)
        host = await w.leased_host(group, tags=["gpu"])
        await host.finish((await host.claim()).tasks)
        await w.host(tags=["x86"])
        explained = await explain_group(w.store, group)
        assert (explained.code, explained.change) == ("open", "submit 1 more task to drained")
        idle = next(one for one in explained.hosts if one.manager_id == host.manager_id)
        assert (idle.code, idle.line) == (
            "open",
            "has nothing to do until more tasks are submitted",
        )
        await w.submit(group, 1)
        assert (await host.claim()).tasks


async def test_what_runs_or_has_ended_needs_no_change(database: str) -> None:
    async with world(database) as w:
        group = await w.group()
        await w.submit(group)
        host = await w.host()
        await assign_round(w.store)
        offered = await explain_group(w.store, group)
        assert (offered.code, offered.change) == ("offered", None)
        await host.take(group)
        assert (await explain_group(w.store, group)).change is None
        (task,) = (await host.claim()).tasks
        number = await w.value("SELECT id FROM task_groups")
        assert (await explain_task(w.store, task_uuid(number, task.task_id))).change is None
        await host.finish([task])
        await w.cancel(group)
        ended = await explain_group(w.store, group)
        assert (ended.change, [host.obstacles for host in ended.hosts]) == (None, [()])


async def working(w: World, group: UUID) -> Host:
    """A host that executes a task of the group."""
    host = await w.leased_host(group)
    await host.renew(started=(await host.claim(1)).tasks)
    return host


@pytest.mark.parametrize("limit", ["max_managers", "useful size"])
async def test_a_busy_host_that_will_not_be_taken_says_what_comes_after_its_affinity(
    database: str, limit: str
) -> None:
    async with world(database) as w:
        low = await w.group("low", priority=-100)
        await w.submit(low, 100)
        busy = await working(w, low)
        most = {"max_managers": 1} if limit == "max_managers" else {}
        high = await w.group("high", priority=120, **most)
        await w.submit(high, 100 if most else 2)
        await working(w, high)
        if most:
            await update_group(w.store, high, TaskGroupUpdate(max_managers=1))
        hosts = {host.manager_id: host for host in (await explain_group(w.store, high)).hosts}
        found = hosts[busy.manager_id]
        assert found.line.startswith("stays with low for ")
        assert found.code == "busy"
        assert [one.code for one in found.obstacles] == [
            "held_affinity",
            "max_managers" if most else "enough",
        ]
        assert "; also is not needed: the task group has 1 of " in found.chain
        asked = await explain_manager(w.store, busy.manager_id)
        ours = next(one for one in asked.groups if one.task_group_id == high)
        assert found.obstacles[1].line == next(
            one.line for one in ours.obstacles if one.code == found.obstacles[1].code
        )
