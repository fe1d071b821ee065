"""A plan that no known host can hold is refused, or explained when the hosts change later."""

import pytest

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy, WorkerAllocationPlan
from mitosis.contracts.errors import InvalidRequest
from mitosis.store.groups.views import read_group
from mitosis.store.leases.scheduler import assign_round
from tests.support.campaigns import world


def plan(
    workers: int, strategy: CpuBindingStrategy, cores: tuple[int, ...] | None = None
) -> WorkerAllocationPlan:
    binding = CpuBinding(strategy=strategy, cores=cores)
    return WorkerAllocationPlan(worker_count=workers, cpu_binding=binding)


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
