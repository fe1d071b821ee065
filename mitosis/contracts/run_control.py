"""What the workflow of a run and the store say to each other."""

from typing import Literal
from uuid import UUID

from pydantic import Field

from mitosis.contracts.control import Model, VerbModel
from mitosis.contracts.http import GraceSeconds
from mitosis.contracts.lifecycle import RUN, RunState
from mitosis.contracts.runs import StopKind


class RunInput(Model):
    run_id: UUID
    refused: str | None = None
    """The last message that changed nothing, of the execution before this one."""


class Cancel(VerbModel):
    """The argument of the signal ``cancel``."""

    kind: Literal["cancel"] = "cancel"
    reason: str | None = Field(default=None, max_length=1000)
    grace_seconds: GraceSeconds | None = None
    """From SIGTERM to SIGKILL of running tasks; None: the grace of their task group."""
    skip_cleanup: bool = False
    """Also the steps that follow others ``always``."""


class RunVerbRequest(Model):
    run_id: UUID
    verb: Cancel


class RunSituation(Model):
    """A run as its workflow sees it; ``exists=False``: it was deleted."""

    run_id: UUID
    exists: bool = True
    state: RunState = RunState.PENDING
    job_name: str = ""
    group_name: str = ""
    stopped_by: StopKind | None = None
    reason: str | None = None
    steps_total: int = 0
    steps_ended: int = 0
    tasks_created: int = 0
    tasks_open: int = 0
    tasks_failed: int = 0
    running_steps: tuple[str, ...] = ()
    """Some of them."""
    next_in_seconds: float | None = None
    """When the next time limit passes."""

    @property
    def is_over(self) -> bool:
        return not self.exists or self.state in RUN.terminal


class RunSummary(Model):
    """The result of the workflow."""

    run_id: UUID
    state: RunState | None
    """None: it was deleted."""
    tasks_created: int
    tasks_failed: int
