"""Bodies of all HTTP calls but the hot ones: pydantic models, shared by the API, the SDK and the agent."""

from datetime import datetime, timedelta
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from mitosis.contracts.allocation import PlanInfo, WorkerAllocationPlan
from mitosis.contracts.checked_model import CheckedModel, Flag, Integer, Number
from mitosis.contracts.duration import Duration
from mitosis.contracts.failing_host import FailingHost
from mitosis.contracts.hook import HookInfo, HookSpec
from mitosis.contracts.identifiers import Name, NewName, Tag
from mitosis.contracts.lease_settings import LeaseSettings
from mitosis.contracts.lifecycle import (
    EnvironmentState,
    LeaseState,
    ManagerState,
    TaskGroupResult,
    TaskGroupState,
    TaskState,
)
from mitosis.contracts.lifetimes import TOKEN_LIFETIME
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.switching import SwitchingCosts
from mitosis.contracts.task_progress import TaskProgressInfo

T = TypeVar("T")

IdempotencyKey = Annotated[str, StringConstraints(min_length=1, max_length=200)]
After = Annotated[Integer, Field(ge=0, le=2**63 - 1)]
"""Number of the last result that was received."""
MAX_GRACE_SECONDS = 86_400
GraceSeconds = Annotated[Number, Field(ge=0, le=MAX_GRACE_SECONDS)]
MAX_WAIT_SECONDS = 60.0  # the longest time that a call may wait


def _some_time(duration: timedelta) -> timedelta:
    if duration <= timedelta(0):
        raise ValueError("must be longer than 0 seconds")
    return duration


def _ten_seconds(duration: timedelta) -> timedelta:
    if duration < timedelta(seconds=10):
        raise ValueError("must be at least 10 seconds")
    return duration


PositiveDuration = Annotated[Duration, AfterValidator(_some_time)]
LivenessDuration = Annotated[Duration, AfterValidator(_ten_seconds)]
Int32 = Annotated[Integer, Field(ge=-(2**31), le=2**31 - 1)]
BigInt = Annotated[Integer, Field(ge=0, le=2**63 - 1)]
MAX_ATTEMPTS_LISTED = 100_000
Epoch = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""In a path or a query, where numbers are text."""
LeaseEpoch = Annotated[Epoch, Strict()]
TaskGroupKind = Literal["managed", "service"]
OnSetupFailure = Literal["end_when_closed", "end", "wait"]


class RequestBody(CheckedModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AnswerBody(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Page(AnswerBody, Generic[T]):
    """One page of a list; ``next`` is the ``after`` of the following one, None at the end."""

    items: list[T]
    next: str | None = None


# --- people -----------------------------------------------------------------------------------------


class Login(RequestBody):
    username: str
    password: str


class Token(AnswerBody):
    token: str
    expires_at: datetime


class Me(AnswerBody):
    user_id: UUID
    username: str
    is_admin: bool
    groups: dict[str, Literal["read", "write", "admin"]]


# --- task groups ------------------------------------------------------------------------------------


class TaskGroupSpec(RequestBody):
    """A new task group."""

    name: NewName
    group_name: Name | None = None
    """User group that owns it; None = the caller's own."""
    kind: TaskGroupKind = "managed"
    """Who executes its tasks: ``managed`` = hosts; ``service`` = worker services, each task by its name."""
    preference_seconds: Annotated[Number, Field(ge=0, le=3600)] | None = None
    """For ``service``: so long a task is kept for a better worker service that waits for one; None = 1 s."""
    tags: frozenset[Tag] = frozenset()
    labels: frozenset[Tag] = frozenset()
    tag_match: Literal["all", "any"] = "all"
    priority: Int32 = 0
    worker_allocation_plan: WorkerAllocationPlan = WorkerAllocationPlan()
    environment_setup_hook: HookSpec | None = None
    environment_teardown_hook: HookSpec | None = None
    environment_probe: HookSpec | None = None
    """Runs on a host that was set up before; unless it ends with status 0, the host is set up again."""
    auto_close_timeout: PositiveDuration | None = None
    close_deadline: AwareDatetime | None = None
    """The latest time of its close; unfinished tasks are then cancelled, with grace."""
    max_managers: Annotated[Integer, Field(ge=1, le=2**31 - 1)] | None = None
    assignment_method: Literal["tag_matched", "user_specified"] = "tag_matched"
    manager_ids: tuple[UUID, ...] = ()
    """For ``user_specified``: the managers that may run it."""
    require_host: Flag = False
    """Refuse to create it if no host that is registered now may run it: role, tags or names, plan."""
    reopen_on_submit: Flag = False
    cancel_grace_seconds: GraceSeconds = 30.0
    host_lost_after: LivenessDuration | None = None
    """At least 10 s; None = the deployment's default (90 s)."""
    fence: Literal["finish", "kill"] = "finish"
    on_setup_failure: OnSetupFailure = "end_when_closed"
    """When its setup has failed on every host that may run it: ``end`` = cancel its tasks and end as
    ``setup_failed``; ``wait`` = wait for another host, or until one is tried again; ``end_when_closed`` =
    wait while it is open."""
    lease_settings: LeaseSettings = LeaseSettings()
    """How long hosts stay with it; fields that are left out have the value of the deployment."""

    @field_validator("environment_probe")
    @classmethod
    def _needs_setup(cls, probe: HookSpec | None, known: ValidationInfo) -> HookSpec | None:
        if probe is not None and known.data.get("environment_setup_hook", ...) is None:
            raise ValueError(
                "needs an environment_setup_hook, which runs again when the probe fails"
            )
        return probe


class TaskGroupUpdate(RequestBody):
    """The fields to change.

    ``null`` removes a limit; for fields that every group has, it is the same as leaving the field out.
    """

    tags: frozenset[Tag] | None = None
    labels: frozenset[Tag] | None = None
    tag_match: Literal["all", "any"] | None = None
    """As for tags: the list of managers is unchanged until it is refreshed."""
    priority: Int32 | None = None
    """Counts from the next assignment round on."""
    worker_allocation_plan: WorkerAllocationPlan | None = None
    """The whole plan. A host that works for the group keeps the old one until its lease ends."""
    auto_close_timeout: PositiveDuration | None = None
    """``null``: never closed for inactivity."""
    max_managers: Annotated[Integer, Field(ge=1, le=2**31 - 1)] | None = None
    """``null``: as many as there are. A lower number ends the excess leases, the last ones first; tasks
    that run there finish."""
    cancel_grace_seconds: GraceSeconds | None = None
    """For cancels that begin later."""
    reopen_on_submit: Flag | None = None
    """Counts from the next submit on."""
    on_setup_failure: OnSetupFailure | None = None
    """Counts at once, also for setups that have failed."""
    lease_settings: LeaseSettings | None = None
    """The settings to change; one that is ``null`` has the value of the deployment again."""
    expected_updated_at: AwareDatetime | None = None
    """Optimistic lock: refuse if the group was changed since."""


class TagsBody(RequestBody):
    """All tags of a task group. The list of managers is unchanged until it is refreshed."""

    tags: frozenset[Tag]
    expected_updated_at: AwareDatetime | None = None
    """As in :class:`TaskGroupUpdate`."""


class LeaseInfo(AnswerBody):
    epoch: int
    state: LeaseState
    task_group_id: UUID
    task_group_name: str
    manager_id: UUID
    manager_name: str
    offered_at: datetime
    taken_at: datetime | None = None
    alive_until: datetime | None = None


class HookRunInfo(AnswerBody):
    kind: Literal["setup", "teardown"]
    state: Literal["waiting", "running", "interrupted", "succeeded", "failed"]
    """``interrupted``: it was stopped before its end, or its agent died."""
    manager_name: str
    exit_code: int | None = None
    signal: int | None = None
    message: str | None = None
    stdout_tail: str | None = None
    stderr_tail: str | None = None
    started_at: datetime
    finished_at: datetime | None = None


WAITING_SETUP_FAILED = "setup failed on "
"""How ``waiting_for`` begins when the setup hook has failed on every host that may run the group."""


class CancelStats(AnswerBody):
    """Outcomes of the tasks that were unfinished when their group was cancelled, as known so far."""

    ready_cancelled: int
    """Tasks that had not started."""
    running_cancelled: int
    """Running tasks that their hosts were asked to stop."""
    running_not_cancellable: int
    """Tasks run by independent workers, which cannot be reached."""


class TaskGroupInfo(AnswerBody):
    task_group_id: UUID
    name: str
    group_name: str
    kind: TaskGroupKind = "managed"
    preference_seconds: float | None = None
    state: TaskGroupState
    settled: bool
    result: TaskGroupResult | None = None
    reason: str | None = None
    tags: list[str]
    labels: list[str]
    priority: int
    worker_allocation_plan: PlanInfo
    environment_setup_hook: HookInfo | None = None
    environment_teardown_hook: HookInfo | None = None
    environment_probe: HookInfo | None = None
    auto_close_timeout: Duration | None = None
    close_deadline: datetime | None = None
    max_managers: int | None = None
    tag_match: Literal["all", "any"] = "all"
    assignment_method: Literal["tag_matched", "user_specified"] = "tag_matched"
    reopen_on_submit: bool = False
    cancel_grace_seconds: float = 30.0
    host_lost_after: Duration | None = None
    fence: Literal["finish", "kill"] = "finish"
    on_setup_failure: OnSetupFailure = "end_when_closed"
    lease_settings: LeaseSettings = LeaseSettings()
    """Its own settings; those of the deployment are ``null``."""
    lease_terms: LeaseSettings | None = None
    """The settings in effect, if one task group is requested; null in lists."""
    tasks_total: int
    tasks_unfinished: int
    tasks_running: int | None = None
    """Attempts that have run for more than 1 s, from the renewals of their hosts every 3 s."""
    tasks_completed: int
    """Succeeded or failed. Cancelled tasks are not completed."""
    tasks_succeeded: int
    tasks_failed: int
    tasks_cancelled: int
    tasks_per_second: float | None = None
    estimated_completion_at: datetime | None = None
    waiting_for: str | None = None
    """One line: why no task runs, if none does."""
    created_at: datetime
    updated_at: datetime
    last_task_submitted_at: datetime | None = None
    closed_at: datetime | None = None
    completed_at: datetime | None = None
    settled_at: datetime | None = None
    leases: list[LeaseInfo] = []
    hook_runs: list[HookRunInfo] = []
    switching: SwitchingCosts | None = None
    """Host time that its switches have cost, and saved. Only in the view of one task group."""
    workflow_id: str
    counting: bool = False
    """Cancelled, and unclaimed tasks are still being cancelled."""
    deleting: bool = False
    """It is deleted as soon as its hosts are clean."""
    setup_failed: bool = False
    """It was ended because its setup had failed on every host that may run it; ``reason`` names them."""
    cancel_stats: CancelStats | None = None
    """In the answer to a cancel."""
    failing_host: FailingHost | None = None
    """Only in the view of one task group."""


class VerbBody(RequestBody):
    reason: str | None = None


class CancelBody(VerbBody):
    cancel_running_tasks: Flag = True
    grace_seconds: GraceSeconds | None = None


class CompleteBody(VerbBody):
    force: Flag = False
    grace_seconds: GraceSeconds | None = None


class RetryBody(RequestBody):
    """Submit ended tasks again in parts: ``after`` is ``next`` of the previous answer, until None."""

    into: str | None = None
    """Reference of the task group that receives the tasks; None: the same task group."""
    reasons: list[FailureKind] = Field(default=[])
    """Only tasks that failed in one of these ways; empty: all failed tasks."""
    cancelled: Flag = False
    """Include cancelled tasks."""
    after: After = 0
    limit: Annotated[Integer, Field(ge=1, le=5000)] = 5000
    idempotency_key: IdempotencyKey
    """One key for the whole retry. Repeating a part under it submits nothing and returns the same answer."""
    dry_run: Flag = False
    """Return the tasks without submitting them."""


class RetriedTasks(AnswerBody):
    """``task_ids[i]`` is the new task for ``retry_of[i]``; empty if nothing was submitted (dry run)."""

    retry_of: list[int]
    task_ids: list[int]
    next: int | None
    """``after`` of the next part; None: there is no more."""


class TaskFailureInfo(AnswerBody):
    attempt: int
    kind: str
    exit_code: int | None = None
    signal: int | None = None
    detail: dict[str, object] | None = None
    """Output and messages of the attempt, if one task is requested; null in lists and results."""
    failed_at: datetime
    first_attempt: int | None = None
    """The entry stands for deaths by SIGTERM or SIGINT in a row: from this attempt to ``attempt``."""
    failure_count: int = 1
    """So many."""


class TaskInfo(AnswerBody):
    task_id: int
    task_uuid: UUID
    task_group_id: UUID
    state: TaskState
    attempt: int
    seq: int | None = None
    """Number of its result in the group."""
    priority: int | None = None
    spec: dict[str, object]
    kind: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    manager_name: str | None = None
    worker_id: str | None = None
    """The worker service that executes it, or has."""
    configuration_version: int | None = None
    """Of the configuration with which that worker service executes it."""
    progress: TaskProgressInfo | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    detail: dict[str, object] | None = None
    failures: list[TaskFailureInfo] = []
    """Attempts that failed and were retried, or ended the task by a crash or a loss; oldest first."""
    next_attempt_at: datetime | None = None
    """When it is tried again, if it waits for that."""
    waits_for: int | None = None
    """How many tasks have to succeed before it may start, if it waits for that."""
    repetition: str | None = None
    """Why it is tried again, how often that may happen, and the way out; null if it has had no failure."""


class ResultsPage(AnswerBody):
    """Results in the order in which they were recorded."""

    items: list[TaskInfo]
    after: int
    """``after`` of the next call."""
    finished: bool
    """The group has ended and these are its last results."""


# --- managers ---------------------------------------------------------------------------------------


class RegisterManager(RequestBody):
    name: NewName | None = None
    """Not unique, because a host that has lost its folder registers again; generated if left out."""
    tags: frozenset[Tag] = frozenset()
    labels: frozenset[Tag] = frozenset()
    groups: tuple[str, ...] = ()
    """``name`` or ``name:role`` (read, write, admin; default write); empty = the caller's own group."""
    lifetime: PositiveDuration = TOKEN_LIFETIME


class RegisteredManager(AnswerBody):
    manager_id: UUID
    name: str
    token: str
    expires_at: datetime


class HostFailureInfo(AnswerBody):
    """What a host failed at for a task group, while it counts."""

    task_group_id: UUID
    task_group_name: str
    kind: str
    """One of ``HostFailureKind``."""
    failures: int
    """In a row."""
    reason: str
    tried_at: datetime | None = None
    """When it is tried again; None: not because of the time."""
    line: str
    """What happened, when it is tried again and the way out, to be read after the name of the host."""


class DrainInfo(AnswerBody):
    """The drain of a host that an operator has begun."""

    since: datetime
    reason: str | None = None
    empty: bool
    """Nothing runs on it, and there is nothing to clean up: it can be taken away."""
    waits_for: list[str]
    """What must end before it is empty, to be read after "waits for"."""


class ManagerInfo(AnswerBody):
    manager_id: UUID
    name: str
    state: ManagerState
    tags: list[str]
    labels: list[str]
    groups: list[str]
    host_name: str | None = None
    agent_version: str | None = None
    """Of the agent's last process."""
    cores: list[int]
    last_contact_at: datetime | None = None
    drain: DrainInfo | None = None
    """Of a host that is drained: it finishes its work and is offered nothing."""
    lease: LeaseInfo | None = None
    environments: dict[str, EnvironmentState] = {}
    """Task group name → state, those that are not gone."""
    debts: dict[str, str] = {}
    """Task group name → why the teardown that the host owes cannot begin, and when it is tried again."""
    failures: list[HostFailureInfo] = []
    switching: SwitchingCosts | None = None
    """Host time that switches have cost, and saved. None: the server is of a version before this field."""
    report_trouble: str | None = None
    """Why reports of ended tasks wait on the host, and what becomes of them; or why it claims nothing."""
    created_at: datetime


class LiftFailures(RequestBody):
    """The task group whose failures on a host no longer count."""

    task_group: str | None = None
    """Id, NAME or USERGROUP/NAME; None: all task groups."""


class LiftedFailures(AnswerBody):
    """The task groups for which a host is tried again."""

    task_groups: list[str]


class GroupManagerInfo(ManagerInfo):
    """A member of a task group."""

    assignment_method: Literal["tag_matched", "user_specified"] = "tag_matched"
    """How it became a member: matched by tags, or added by a user."""
    matched_tags: list[str] | None = None
    """The tags that group and host had in common when they were matched."""
    added_at: datetime | None = None
    added_by_user_id: UUID | None = None
