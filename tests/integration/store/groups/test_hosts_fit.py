"""A plan that no known host can hold is refused, or explained when the hosts change later."""

import pytest

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.errors import InvalidRequest
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import assign_round
from tests.support.campaigns import World, world


def plan(
    workers: int, strategy: CpuBindingStrategy, cores: tuple[int, ...] | None = None
) -> WorkerAllocationPlan:
    binding = CpuBinding(strategy=strategy, cores=cores)
    return WorkerAllocationPlan(worker_count=workers, cpu_binding=binding)


@pytest.mark.spec("S000-160")
async def test_a_group_that_no_registered_host_may_run_is_refused_where_one_is_required(
    database: str,
) -> None:
    async with world(database) as w:
        shared = plan(2, CpuBindingStrategy.EXCLUSIVE)
        small: list[tuple[dict[str, object], str, str]] = [
            ({}, "no host may work for the user group; register one", "group_name"),
        ]
        usual: list[tuple[dict[str, object], str, str]] = [
            (
                {"tags": {"gpu", "tpu"}},
                "no host has all of the tags gpu, tpu: host lacks tpu; hosts have cpu, gpu",
                "tags",
            ),
            ({"tags": {"tpu"}, "tag_match": "any"}, "has any of the tags tpu", "tags"),
            ({"assignment_method": "user_specified"}, "none is named", "manager_ids"),
            (
                {"tags": {"gpu"}, "worker_allocation_plan": shared},
                "host cannot serve it: 2 exclusive workers need 2 cores",
                "worker_allocation_plan",
            ),
        ]
        await refused(w, small)
        await w.host(tags=["cpu"])
        await w.host(tags=["gpu"])
        await w.rows("UPDATE managers SET cores = '{0}' WHERE tags = '{gpu}'")
        await refused(w, usual)
        assert await w.value("SELECT count(*) FROM task_groups") == 0
        group = await w.group("fits", tags={"gpu"}, require_host=True)
        await w.submit(group)
        assert (await assign_round(w.store)).offered == 1
        await w.group("later", tags={"tpu"})  # a host that comes later is matched


async def refused(w: World, cases: list[tuple[dict[str, object], str, str]]) -> None:
    for spec, words, field in cases:
        with pytest.raises(InvalidRequest, match=words) as error:
            await w.group("bad", require_host=True, **spec)
        assert error.value.facts["field"] == field


@pytest.mark.spec("S002-246", "S002-247", "C-15", "S000-134")
@pytest.mark.parametrize(
    ("impossible", "words"),
    [
        (plan(3, CpuBindingStrategy.EXCLUSIVE), "3 exclusive workers need 3 cores"),
        (plan(1, CpuBindingStrategy.SHARED, (0, 99)), "no core 99"),
    ],
)
async def test_a_plan_that_no_registered_host_can_hold_is_refused(
    database: str, impossible: WorkerAllocationPlan, words: str
) -> None:
    async with world(database) as w:
        early = await w.group("early", worker_allocation_plan=impossible)  # no host yet: who knows
        await w.host()
        with pytest.raises(InvalidRequest, match=words) as refused:
            await w.group("late", worker_allocation_plan=impossible)
        assert refused.value.facts["field"] == "worker_allocation_plan"
        assert await w.value("SELECT count(*) FROM task_groups") == 1

        await w.submit(early)
        assert (await assign_round(w.store)).offered == 0
        assert words in str((await read_group(w.store, early)).waiting_for)

        await w.host()  # of the same size: one that fits is enough
        await w.rows(
            "UPDATE managers SET cores = '{0,1,2,99}' WHERE id = (SELECT max(id) FROM managers)"
        )
        await w.group("late", worker_allocation_plan=impossible)
        assert (await assign_round(w.store)).offered == 1
