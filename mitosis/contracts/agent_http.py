"""Bodies of the calls of an agent that are not frequent; the frequent ones are in ``wire``."""

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import (
    AwareDatetime,
    Field,
    model_validator,
)

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.checked_model import Flag, Integer
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import (
    MAX_ATTEMPTS_LISTED,
    AnswerBody,
    BigInt,
    Int32,
    LeaseEpoch,
    RequestBody,
)
from mitosis.contracts.identifiers import PlainText
from mitosis.contracts.lifecycle import (
    EnvironmentState,
    LeaseState,
)


class AttemptList(RequestBody):
    """Attempts in ascending order, in few bytes: MAX_ATTEMPTS_LISTED of them fit into a request of 2 MB."""

    task_id_steps: Annotated[tuple[BigInt, ...], Field(max_length=MAX_ATTEMPTS_LISTED)] = ()
    """The first task id, then the difference of each task id from the one before."""
    attempts: Annotated[tuple[Int32, ...], Field(max_length=MAX_ATTEMPTS_LISTED)] = ()
    """The attempt of each, in the same order."""

    @model_validator(mode="after")
    def _names_attempts(self) -> Self:
        if len(self.task_id_steps) != len(self.attempts):
            raise ValueError("task_id_steps and attempts must have the same number of items")
        if sum(self.task_id_steps) >= 2**63:
            raise ValueError("task_id_steps must add up to less than 2**63")
        return self

    @classmethod
    def of(cls, keys: Iterable[AttemptKey]) -> "AttemptList":
        """Make the list of these attempts: at most MAX_ATTEMPTS_LISTED."""
        ordered = sorted(keys)
        task_ids = [key.task_id for key in ordered]
        steps = tuple(after - before for before, after in pairwise([0, *task_ids]))
        return cls(task_id_steps=steps, attempts=tuple(key.attempt for key in ordered))

    def keys(self) -> list[AttemptKey]:
        """Return the attempts, in ascending order."""
        task_ids = accumulate(self.task_id_steps)
        return [AttemptKey(*key) for key in zip(task_ids, self.attempts, strict=True)]


class Hello(RequestBody):
    incarnation: Annotated[Integer, Field(ge=1, le=2**63 - 1)]
    machine_id: PlainText
    boot_id: PlainText
    host_name: PlainText
    cores: tuple[Annotated[Integer, Field(ge=0, le=2**31 - 1)], ...]
    agent_version: PlainText
    take_over: Flag = False
    journal: AttemptList = AttemptList()
    """Ended attempts whose reports are in the journal: their tasks are not requeued (P5)."""
    planned_stop: Annotated[Integer, Field(ge=1, le=2**63 - 1)] | None = None
    """Incarnation of the process before, if that one stopped in order: its ending charges nothing (P5)."""
    begun: AttemptList = AttemptList()
    """Attempts that an earlier process of this agent has started and that have not ended there (P5)."""


class HeldLease(AnswerBody):
    epoch: int
    task_group_id: UUID


class HelloAnswer(AnswerBody):
    manager_id: UUID
    name: str
    incarnation: int
    """The one now in force (after a take-over it continues from PostgreSQL's value)."""
    temporal_namespace: str
    temporal_task_queue: str
    lease: HeldLease | None = None
    owed: tuple[UUID, ...] = ()
    """Task groups whose teardown this host owes; first thing to do."""
    host_lost_after_seconds: float
    request_fields: dict[str, list[str]] = Field(default_factory=dict)
    """Name of a body -> the fields that every API process accepts; see ``contracts.request_fields``."""


class Goodbye(RequestBody):
    epoch: LeaseEpoch | None = None


class LeaseGrant(AnswerBody):
    """Everything an agent needs to run a lease."""

    epoch: int
    lease_state: LeaseState
    """``offered``: take the lease before anything else; ``ending``: start nothing."""
    task_group_id: UUID
    task_group_number: int
    """For ``mitosis.contracts.ids.task_uuid``."""
    task_group_name: str
    group_name: str
    worker_allocation_plan: WorkerAllocationPlan
    environment_setup_hook: HookSpec | None = None
    environment_probe: HookSpec | None = None
    environment_state: EnvironmentState | None = None
    environment_fingerprint: str | None = None
    """Fingerprint of the environment in PostgreSQL; compare it with the checkpoint."""
    cancel_grace_seconds: float
    host_lost_after_seconds: float
    fence: Literal["finish", "kill"]


class ManagerTaskGroup(LeaseGrant):
    """The task group of the lease that a manager holds or is offered."""


class EnvironmentGrant(AnswerBody):
    """Everything an agent needs to clean up after a group."""

    task_group_id: UUID
    task_group_name: str
    group_name: str
    worker_count: int
    state: EnvironmentState
    environment_teardown_hook: HookSpec | None = None


class HookReport(RequestBody):
    state: Literal["waiting", "running", "succeeded", "failed"]
    exit_code: Int32 | None = None
    signal: Int32 | None = None
    message: str | None = None
    stdout_tail: str | None = None
    stderr_tail: str | None = None
    retry_count: Annotated[Integer, Field(ge=0, le=2**31 - 1)] = 0
    started_at: AwareDatetime
    finished_at: AwareDatetime | None = None


class EnvironmentChange(RequestBody):
    """``preparing`` may be repeated; the others are edges of ``lifecycle.ENVIRONMENT``."""

    event: Literal["preparing", "prepared", "setup_failed", "tear_down", "postpone", "cleaned"]
    """``setup_failed`` with a ``waiting`` hook: no process could be made for it, so it has not run."""
    epoch: LeaseEpoch | None = None
    """Needed for preparing, prepared and setup_failed: the lease they belong to."""
    fingerprint: str | None = None
    degraded: Flag = False
    hook: HookReport | None = None


class EnvironmentAnswer(AnswerBody):
    state: EnvironmentState
