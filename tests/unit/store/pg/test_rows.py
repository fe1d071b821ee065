"""Rows become typed records."""

import uuid
from dataclasses import dataclass

import msgspec
import pytest

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.lifecycle import LeaseState
from mitosis.store.pg.rows import to_record


@dataclass(frozen=True, slots=True)
class Lease:
    epoch: int
    state: LeaseState
    tags: frozenset[str]
    plan: WorkerAllocationPlan
    holder: uuid.UUID | None


ROW = {
    "epoch": 7,
    "state": "active",
    "tags": ["a", "b"],
    "plan": {"worker_count": 3},
    "holder": None,
    "unused": 1,
}


def test_a_row_is_a_record_with_enums_sets_and_models() -> None:
    lease = to_record(ROW, Lease)
    assert lease == Lease(
        7, LeaseState.ACTIVE, frozenset("ab"), WorkerAllocationPlan(worker_count=3), None
    )
    assert to_record({**ROW, "holder": (holder := uuid.uuid4())}, Lease).holder == holder


@pytest.mark.parametrize("wrong", [{"state": "lost"}, {"epoch": "x"}, {"tags": None}])
def test_a_column_that_does_not_fit_is_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        to_record({**ROW, **wrong}, Lease)
