"""The payloads of Temporal: ids, epochs and verbs as input, states and seconds left as output.

pydantic models.

Every field of a signal or update has a default, so that users may send no input, ``null``, ``{}`` or an
object. Times are *seconds left*, computed by PostgreSQL.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, TypeAlias, get_args
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from mitosis.contracts.lifecycle import (
    EnvironmentState,
    LeaseState,
    ManagerState,
    TaskGroupResult,
    TaskGroupState,
)


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


# --- workflow inputs and verbs --------------------------------------------------------------------


class TaskGroupInput(Model):
    """Input of TaskGroupWorkflow."""

    task_group_id: UUID
    refused: str | None = None
    """The last signal that a run before this one refused, and why; shown to users."""


class ManagerInput(Model):
    """Input of ManagerWorkflow."""

    manager_id: UUID


class VerbModel(Model):
    """The fields that every verb may have."""

    reason: str | None = None
    valid_until: AwareDatetime | None = None
    """Executed only before this time, because the sender then reports a timeout. None = always."""


class Close(VerbModel):
    """Accept no more tasks; complete when the last one ends."""

    kind: Literal["close"] = "close"


class Reopen(VerbModel):
    """Accept tasks again."""

    kind: Literal["reopen"] = "reopen"


class Cancel(VerbModel):
    """Cancel the group: no more tasks are claimed."""

    kind: Literal["cancel"] = "cancel"
    cancel_running_tasks: bool = Field(default=True, strict=True)
    """True: SIGTERM, grace, SIGKILL. False: running tasks finish and their results count."""
    grace_seconds: float | None = Field(default=None, ge=0, le=86_400, strict=True)
    """None = the grace of the group."""


class Complete(VerbModel):
    """Close and complete. With ``force`` unfinished tasks are cancelled first, with grace."""

    kind: Literal["complete"] = "complete"
    force: bool = Field(default=False, strict=True)
    grace_seconds: float | None = Field(default=None, ge=0, le=86_400, strict=True)


class VerbRequest(Model):
    """One verb for one group, as activities and the store take it."""

    task_group_id: UUID
    verb: Close | Reopen | Cancel | Complete = Field(discriminator="kind")


# --- views ----------------------------------------------------------------------------------------


class GroupView(Model):
    """All inputs of TaskGroupWorkflow's decisions, from one consistent read."""

    task_group_id: UUID
    exists: bool = True
    name: str = ""
    group_name: str = ""
    """The user group that owns it."""
    priority: int = 0
    tags: tuple[str, ...] = ()
    state: TaskGroupState = TaskGroupState.OPEN
    settled: bool = False
    result: TaskGroupResult | None = None
    total: int = 0
    unfinished: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    drain_seq: int = 0
    auto_close_in_seconds: float | None = None
    """Seconds until it is closed for inactivity; 0 or less = due; None = never."""
    close_deadline_in_seconds: float | None = None
    discarding: bool = False
    """Unfinished tasks are being cancelled (cancel, or a forced complete)."""
    discardable: bool = False
    """Discarding, and unclaimed tasks are left to cancel."""
    live_leases: int = 0
    """Leases that are not ENDED, offers included."""
    busy_environments: int = 0
    """Environments whose end the settlement waits for."""
    cleanup_given_up_in_seconds: float | None = None
    """Seconds until it stops waiting for what hosts in contact owe; None = it waits for no such thing."""
    waiting_for: str | None = None
    """One line for users: why no task runs, if none does."""
    chain: tuple[str, ...] = ()
    """While it waits: what keeps each host from it, and the smallest change; for users."""
    setup_failed: bool = False
    """Its setup has failed on every host that may serve it, and it ends because of that."""
    settled_after_seconds: float | None = None
    """From creation to settlement; None while unsettled."""

    @property
    def standing(self) -> "GroupView":
        """The view without what changes by itself or with every task: equal while no step has an effect."""
        return GroupView(
            task_group_id=self.task_group_id,
            exists=self.exists,
            state=self.state,
            settled=self.settled,
            cancelled=self.cancelled,
            discarding=self.discarding,
            live_leases=self.live_leases,
            busy_environments=self.busy_environments,
        )

    @property
    def settleable(self) -> bool:
        """Whether the group is terminal and nothing of it is left; ``settle`` checks again."""
        terminal = self.state in (TaskGroupState.COMPLETE, TaskGroupState.CANCELLED)
        left = self.unfinished or self.live_leases or self.busy_environments
        return terminal and not self.settled and not left


class GroupSummary(Model):
    """Result of TaskGroupWorkflow; a parent workflow of another team receives it."""

    task_group_id: UUID
    name: str
    state: TaskGroupState
    result: TaskGroupResult | None
    total: int
    succeeded: int
    failed: int
    cancelled: int
    seconds: float | None = None
    """From creation to settlement."""


class LeaseTurn(Model):
    """The next time at which the clock may take a lease from its group (C-31, C-35, S000-140)."""

    what: str
    """Stable: ask_back, idle, affinity."""
    why: str
    """For people: what happens then."""
    in_seconds: float


class LeaseView(Model):
    """The live lease of a manager."""

    epoch: int
    state: LeaseState
    task_group_id: UUID
    task_group_name: str = ""
    group_state: TaskGroupState
    alive_in_seconds: float | None = None
    """Seconds until the silent host is lost; 0 or less = lost. None while offered."""
    end_reason: str | None = None
    turn: LeaseTurn | None = None
    """None: nothing but an ending is to come, or a version before this field observed it."""


class EnvironmentView(Model):
    """An environment of a manager that is not GONE."""

    task_group_id: UUID
    task_group_name: str = ""
    state: EnvironmentState
    cleanable: bool = False
    """No live lease of this manager for the group, and the group is terminal (or the host must make room)."""


class ManagerView(Model):
    """All inputs of ManagerWorkflow's decisions, from one consistent read."""

    manager_id: UUID
    exists: bool = True
    name: str = ""
    state: ManagerState | None = None
    """Shown to users, by ``derived_manager_state``. None: a version before this field observed it."""
    online: bool = False
    """In contact within the last 10 s (not suspect)."""
    lost_in_seconds: float | None = None
    """Seconds until a silent host without a lease is lost; 0 or less = lost; None = offline."""
    lease: LeaseView | None = None
    environments: tuple[EnvironmentView, ...] = ()
    chain: tuple[str, ...] = ()
    """While it serves no task group: what keeps it from those with work, in the words of `explain`."""

    @property
    def standing(self) -> "ManagerView":
        """The view without times: equal while nothing but time has passed, here or elsewhere."""
        lease = self.lease
        if lease is not None:
            turn = lease.turn and lease.turn.model_copy(update={"in_seconds": 0.0})
            lease = lease.model_copy(update={"alive_in_seconds": None, "turn": turn})
        return self.model_copy(update={"lost_in_seconds": None, "lease": lease, "chain": ()})


class ReleaseReason(StrEnum):
    """Why a lease ended."""

    GROUP_ENDED = "group_ended"
    """The group is COMPLETE or CANCELLED."""
    SETUP_FAILED = "setup_failed"
    SETUP_LOST = "setup_lost"
    """The setup activity ended without a verdict (agent restarted or unreachable)."""
    WORKERS_NOT_STARTED = "workers_not_started"
    """The agent cannot start workers for the group on this host."""
    UNREACHABLE = "unreachable"
    """An offer that the host did not take in 10 s."""
    MOVED = "moved"
    """Another group goes first, or fewer managers are wanted."""
    DRAINED = "drained"
    """The offer was withdrawn because its host is drained."""
    NO_PROGRESS = "no_progress"
    """It claimed nothing although work was claimable and nothing ran under it."""
    LOST = "lost"
    """Silent for longer than ``host_lost_after``."""
    GOODBYE = "goodbye"
    """The agent shut down in order."""
    NEW_INCARNATION = "new_incarnation"
    """A new process of the agent said hello."""


class ReleaseRequest(Model):
    manager_id: UUID
    epoch: int | None
    """None only with LOST: the host holds no lease, but its environments must become owed."""
    reason: ReleaseReason


class ReleaseStatus(StrEnum):
    RELEASED = "released"
    """Ended now; its tasks are ready again."""
    ALREADY_ENDED = "already_ended"
    ALIVE = "alive"
    """Nothing changed. Reason LOST: the manager was in contact since, or no API was there to receive
    contact. Reason UNREACHABLE: the offer was taken since."""


class ReleaseAnswer(Model):
    status: ReleaseStatus
    requeued: int = 0
    alive_in_seconds: float | None = None


PokeKind: TypeAlias = Literal["task_group", "manager", "scheduler", "run", "schedule"]
POKE_KINDS: tuple[PokeKind, ...] = get_args(PokeKind)
WorkflowKind: TypeAlias = Literal["task_group", "manager", "scheduler", "run", "retention"]
"""A schedule has no workflow of its own. Retention has timers only: no transaction pokes it."""


class Names(Model):
    """What the subject of a workflow is called, for the lists of Temporal's own tools."""

    task_group: str | None = None
    user_group: str | None = None
    """The one that owns the task group."""
    manager: str | None = None
    job: str | None = None
    """The one that a run is of."""

    @property
    def memo(self) -> Mapping[str, str]:
        """The names that are known, as the memo of the workflow has them."""
        return self.model_dump(exclude_none=True)


class Poke(Model):
    """A row of the outbox: wake the workflow of one task group, manager or run, or the scheduler.

    Of a schedule: ensure it in Temporal.
    """

    id: int
    kind: PokeKind
    subject: UUID | None = None
    """Task group, manager, run or schedule; None for the scheduler."""
    names: Names = Names()


class Expected(Model):
    """Which workflows must be running, as PostgreSQL sees it (protocol P6, reconcile)."""

    task_groups: tuple[UUID, ...] = ()
    """Unsettled groups."""
    urgent_groups: tuple[UUID, ...] = ()
    """Those among them that have a lease or a timer, or that do not accept tasks any more."""
    managers: tuple[UUID, ...] = ()
    """Managers with a live lease, with an environment preparing, ready or tearing down, or with one that is
    owed and that a group waits for."""
    overdue_managers: tuple[UUID, ...] = ()
    """Those among them that have been silent for long enough to be lost: their workflow must look."""
    runs: tuple[UUID, ...] = ()
    """Runs that have not ended."""
    names: Mapping[UUID, Names] = {}


class DiscardAnswer(Model):
    """One chunk of cancelled tasks."""

    cancelled: int
    remaining: bool


class AssignAnswer(Model):
    """One assignment round."""

    offered: int
    resignalled: int
    next_round_in_seconds: float | None = None
    """When to look again without a poke (an offer to check, a delayed task, a judgement); None = never."""
    judged_again_in_seconds: float | None = None
    """When hosts whose tasks fail are judged again; None: there are none."""
    due_without_judgement_in_seconds: float | None = None
    """If there are: when another reason needs the next round; None = never."""

    @property
    def due_in_seconds(self) -> float | None:
        """When anything but a judgement needs the next round; None = never."""
        judged = self.judged_again_in_seconds is not None
        return self.due_without_judgement_in_seconds if judged else self.next_round_in_seconds


class WaitingWork(Model):
    """What one look at PostgreSQL has found (protocol P7)."""

    what: tuple[str, ...] = ()
    """All that a round would do now, one line each; empty: nothing waits for one."""
    last_epoch: int = 0
    """Of the newest lease. While it and ``what`` stay the same, no round has acted."""
    offered: Mapping[int, UUID] = {}
    """The hosts that have not taken an offer for a second, by its epoch."""
    groups: tuple[UUID, ...] = ()
    """Task groups whose setup has failed on every host, and that have not ended yet."""
    situations: Mapping[UUID, int] = {}
    """Of task groups with tasks: a number that is another one when what keeps hosts from them is."""
    idle_hosts: Mapping[UUID, int] = {}
    """The same of hosts in contact without a lease, if they are few."""


# --- host activities ------------------------------------------------------------------------------


class HostCommand(Model):
    """The argument of every host activity: ids and an epoch. It contains nothing that is executed.

    The agent fetches the lease, the plan and the hooks with its own token and refuses a command that
    PostgreSQL does not confirm (``lease_lost``).
    """

    manager_id: UUID
    task_group_id: UUID
    epoch: int | None = None
    """None for a teardown, which is fenced by the environment row."""


class HookVerdict(StrEnum):
    READY = "ready"
    """Setup succeeded, or a checkpoint showed that it had."""
    FAILED = "failed"
    """Execution failure: this machine cannot serve the group."""
    CLEANED = "cleaned"
    DEGRADED = "degraded"
    """Teardown failed or was given up; the environment counts as gone."""
    LEASE_LOST = "lease_lost"
    """PostgreSQL did not confirm the command: the host did nothing."""


class HookOutcome(Model):
    """How prepare_environment or clean_environment ended."""

    verdict: HookVerdict
    message: str = ""
    seconds: float = 0.0


class LeaseEnd(StrEnum):
    """Why a lease session, or a host activity under its lease, ended.

    An agent answers with one of the first four. A workflow uses the others if there is no answer.
    """

    ENDING = "ending"
    """PostgreSQL ends the lease; everything here is reported or returned."""
    GONE = "gone"
    """PostgreSQL does not confirm the lease: it is not this manager's, or no longer."""
    STOPPING = "stopping"
    """The agent is shutting down in order and has reported or returned everything."""
    DETACHED = "detached"
    """The activity was cancelled or lost its server while the lease goes on; attach again."""
    UNREACHABLE = "unreachable"
    """The host did not take the activity from its task queue in time."""
    SILENT = "silent"
    """Its heartbeats stopped."""
    FAILED = "failed"
    """The agent raised an error."""


class LeaseOutcome(Model):
    """How run_lease ended."""

    end: LeaseEnd
    tasks_reported: int = 0


class LeaseProgress(Model):
    """Heartbeat details of run_lease, shown with the pending activity in Temporal."""

    running: int = 0
    done: int = 0
    tasks_per_second: float = 0.0
    workers: int = 0
