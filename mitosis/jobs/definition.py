"""The definition of a job: typed, frozen models of what a user writes in YAML or in Python.

Types and single fields are checked here; what holds between fields and between steps, such as names of
steps that exist and the absence of cycles, is checked by ``mitosis.jobs.reading``, which every definition
passes. A default never changes and a field never changes its meaning: the digest of a version counts on it.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.checked_model import Flag, Integer, Number
from mitosis.contracts.duration import Duration
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import (
    GraceSeconds,
    Int32,
    LivenessDuration,
    OnSetupFailure,
    PositiveDuration,
    RequestBody,
)
from mitosis.contracts.identifiers import Name, NewName, PlainText, Tag
from mitosis.contracts.lease_settings import LeaseSettings
from mitosis.contracts.task import DEFAULT_KILL_GRACE_SECONDS, MAX_ATTEMPTS, RetryPolicy
from mitosis.jobs.fields import (
    After,
    Arguments,
    Count,
    FailureLimit,
    Handler,
    NamedTask,
    Outcome,
    Over,
    ParameterType,
    StepName,
    Template,
    When,
)

MAIN_GROUP = "main"
"""The group of steps that name none."""
MAX_STEPS = 1_000
MAX_DESCRIPTION = 2_000

Description = Annotated[str, Field(max_length=MAX_DESCRIPTION)]
PositiveInt = Annotated[Integer, Field(ge=1, le=2**31 - 1)]


def _sorted(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))


class Parameter(RequestBody):
    """A value that each run is given by name."""

    type: ParameterType = ParameterType.STRING
    description: Description = ""
    required: Flag | None = None
    """None: required if there is no default. ``false`` without a default: the value may be null."""
    default: Any = None
    choices: tuple[Any, ...] | None = None
    """The only values that are accepted."""

    @property
    def is_required(self) -> bool:
        return self.default is None if self.required is None else self.required


class Retry(RequestBody):
    """When a failed task of the step is tried again; as :class:`mitosis.contracts.task.RetryPolicy`."""

    max_attempts: Annotated[Integer, Field(ge=1, le=MAX_ATTEMPTS)] = 1
    exit_codes: tuple[Integer, ...] | None = None
    """Retry only these exit codes; None = any, a timeout and a handler error too."""
    delay: Duration = timedelta(0)
    """Pause before the next attempt, doubled for each further failure."""
    max_terminations: Annotated[Integer, Field(ge=1, le=1000)] | None = None

    def policy(self) -> RetryPolicy:
        """Return the policy of the step's tasks."""
        return RetryPolicy(
            max_attempts=self.max_attempts,
            exit_codes=self.exit_codes,
            delay_seconds=self.delay.total_seconds(),
            max_terminations=self.max_terminations,
        )


class GroupSettings(RequestBody):
    """The task group in which steps run: one that a run creates, or a standing one."""

    standing: Annotated[str, Field(min_length=1, max_length=201)] | None = None
    """Name of a task group that exists, NAME or USERGROUP/NAME; without further fields."""
    tags: Annotated[tuple[Tag, ...], AfterValidator(_sorted)] = ()
    tag_match: Literal["all", "any"] = "all"
    priority: Int32 = 0
    plan: WorkerAllocationPlan = WorkerAllocationPlan()
    setup: HookSpec | None = None
    teardown: HookSpec | None = None
    probe: HookSpec | None = None
    max_hosts: PositiveInt | None = None
    on_setup_failure: OnSetupFailure = "end"
    host_lost_after: LivenessDuration | None = None
    cancel_grace_seconds: GraceSeconds = 30.0
    preference_seconds: Annotated[Number, Field(ge=0, le=3600)] | None = None
    """For steps of worker services."""
    lease_settings: LeaseSettings = LeaseSettings()


class Step(RequestBody):
    """A named part of a job: one task, or an array of them. Exactly one of the first three is given."""

    command: tuple[Template, ...] | None = None
    """argv; an element that is one reference to a list becomes as many elements."""
    handler: Handler | None = None
    """``module:function``."""
    named_task: NamedTask | None = None
    """``NAMESPACE/NAME@VERSION``, executed by a worker service."""
    arguments: Arguments | None = None
    """Keyword or positional arguments of a handler or a named task."""
    executor: Name | None = None
    """Kind of executor; None = that of what is run: command, handler or service."""
    description: Description = ""
    group: StepName = MAIN_GROUP
    """Name in ``groups``."""
    environment: dict[str, Template] = Field(default={})
    working_directory: Template | None = None
    after: After = Field(default={})
    when: When | None = None
    """The step is skipped unless this holds when its turn comes."""
    count: Count | None = None
    """An array of so many tasks; ``task.index`` counts from 0."""
    over: Over | None = None
    """An array of one task for each item, which is ``item``."""
    priority: Int32 = 0
    retry: Retry = Retry()
    task_timeout: PositiveDuration | None = None
    """SIGTERM to a task after this long, each attempt for itself."""
    kill_grace_seconds: GraceSeconds = DEFAULT_KILL_GRACE_SECONDS
    timeout: PositiveDuration | None = None
    """The whole step: what is left of it is cancelled, and it has failed."""
    max_failures: FailureLimit | None = None
    """When more tasks than this have failed, the rest of the step is cancelled."""

    @property
    def is_array(self) -> bool:
        """Whether it has tasks by number: its own, or those of a step that it follows one by one."""
        return self.count is not None or self.over is not None or bool(self.each_of)

    @property
    def each_of(self) -> tuple[str, ...]:
        """The steps whose tasks each precede the task of the same index."""
        return tuple(name for name, outcome in self.after.items() if outcome is Outcome.EACH)

    @property
    def executed_by(self) -> str:
        """Return the kind of executor."""
        if self.executor is not None:
            return self.executor
        if self.command is not None:
            return "command"
        return "handler" if self.handler is not None else "service"


class JobDefinition(RequestBody):
    """One version of a job."""

    name: NewName
    description: Description = ""
    parameters: dict[StepName, Parameter] = Field(default={})
    groups: dict[StepName, GroupSettings] = Field(default={})
    """A step without ``group`` is in ``main``, which has default settings unless it is here."""
    steps: Annotated[dict[StepName, Step], Field(min_length=1, max_length=MAX_STEPS)]
    timeout: PositiveDuration | None = None
    """The whole run: what is left of it is cancelled, and it has failed."""
    max_failures: FailureLimit | None = None
    """When more tasks than this have failed, the rest of the run is cancelled."""
    max_concurrent_tasks: PositiveInt | None = None
    """Tasks of one run that run at the same time."""
    max_concurrent_runs: PositiveInt | None = None
    """Runs of the job at the same time; a further one waits as pending."""
    labels: Annotated[tuple[PlainText, ...], AfterValidator(_sorted)] = ()

    def group_of(self, step: str) -> GroupSettings:
        """Return the settings of the group of a step."""
        return self.groups.get(self.steps[step].group, _DEFAULT_GROUP)


_DEFAULT_GROUP = GroupSettings()
