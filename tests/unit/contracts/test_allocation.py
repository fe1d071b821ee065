"""Which cores each worker gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mitosis.contracts.allocation import (
    CpuBinding,
    CpuBindingStrategy,
    WorkerAllocationPlan,
    worker_cpus,
)
from mitosis.contracts.errors import InvalidRequest

HOST = range(8)


def cpus(count: int, strategy: str, **binding: object) -> list[set[int]]:
    plan = WorkerAllocationPlan.model_validate(
        {"worker_count": count, "cpu_binding": {"strategy": strategy, **binding}}
    )
    return [set(found or ()) for found in worker_cpus(plan, HOST)]


@pytest.mark.spec("S002-81", "S002-240")
def test_round_robin_gives_worker_i_core_i_modulo_n() -> None:
    assert cpus(5, "round_robin", cores=[4, 1, 6]) == [{4}, {1}, {6}, {4}, {1}]


@pytest.mark.spec("S002-81", "S002-242")
def test_shared_gives_every_worker_all_listed_cores() -> None:
    assert cpus(3, "shared", cores=[0, 3]) == [{0, 3}] * 3


@pytest.mark.spec("S002-81", "C-15")
def test_exclusive_splits_evenly_and_gives_the_remainder_to_the_first_workers() -> None:
    assert cpus(3, "exclusive") == [{0, 1, 2}, {3, 4, 5}, {6, 7}]
    assert cpus(3, "exclusive", cores_per_worker=2) == [{0, 1}, {2, 3}, {4, 5}]


@pytest.mark.spec("C-15")
@pytest.mark.parametrize("binding", [{"cores": [0, 1]}, {"cores_per_worker": 3}])
def test_more_exclusive_workers_than_cores_is_an_error(binding: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="exclusive workers need") as caught:
        cpus(3, "exclusive", **binding)
    assert caught.value.facts["field"] == "worker_allocation_plan.worker_count"


def test_a_core_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"no core 9, 11; it offers \[0, 1, 2") as caught:
        cpus(1, "shared", cores=[1, 11, 9])
    assert caught.value.facts["field"] == "worker_allocation_plan.cpu_binding.cores"


def test_without_a_binding_nothing_is_pinned() -> None:
    assert worker_cpus(WorkerAllocationPlan(worker_count=2), HOST) == [None, None]


@given(count=st.integers(1, 40), cores=st.sets(st.integers(0, 63), min_size=1))
def test_exclusive_cores_belong_to_one_worker_and_none_is_left_over(
    count: int, cores: set[int]
) -> None:
    binding = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
    plan = WorkerAllocationPlan(worker_count=count, cpu_binding=binding)
    if count > len(cores):
        with pytest.raises(InvalidRequest):
            worker_cpus(plan, sorted(cores))
        return
    sets = [set(found or ()) for found in worker_cpus(plan, sorted(cores))]
    assert sum(len(found) for found in sets) == len(cores)
    assert set().union(*sets) == cores
    assert max(map(len, sets)) - min(map(len, sets)) <= 1


@pytest.mark.spec("S002-79", "S002-80", "S000-30")
def test_the_fields_of_a_plan() -> None:
    plan = WorkerAllocationPlan.model_validate(
        {
            "worker_count": 2,
            "cpu_binding": {"cores": [0, 2], "strategy": "shared"},
            "task_prefetch_count": 7,
        }
    )
    assert (plan.worker_count, plan.task_prefetch_count) == (2, 7)
    assert plan.cpu_binding == CpuBinding(cores=(0, 2), strategy=CpuBindingStrategy.SHARED)


@pytest.mark.parametrize(
    "bad",
    [
        {"worker_count": 0},
        {"worker_count": -1},
        {"worker_count": 1, "task_prefetch_count": -1},
        {"worker_count": 1, "cpu_binding": {"cores": []}},
        {"worker_count": 1, "cpu_binding": {"cores": [1, 1]}},
        {"worker_count": 1, "cpu_binding": {"cores": [-1]}},
        {"worker_count": 1, "cpu_binding": {"strategy": "some"}},
        {"worker_count": 1, "cpu_binding": {"cores_per_worker": 0}},
        {"worker_count": 1, "python_path": ["relative"]},
        {"worker_count": 1, "wrokers": 2},
    ],
)
def test_bad_plans_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WorkerAllocationPlan.model_validate(bad)
