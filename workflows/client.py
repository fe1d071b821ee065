"""A client for our workflows: connect, poke, execute a verb. Used by the API and the relay.

It maps errors of Temporal to Mitosis errors. The workflows set their search attributes themselves, so that
a poke does not fail in a namespace that has none yet.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from mitosis.contracts.control import (
    Cancel,
    Close,
    Complete,
    GroupView,
    ManagerInput,
    Names,
    Reopen,
    TaskGroupInput,
    WorkflowKind,
)
from mitosis.contracts.errors import BY_CODE, InvalidTransition, MitosisError, TemporalUnavailable
from mitosis.contracts.run_control import RunInput
from mitosis.contracts.temporal_names import (
    CONTROL_TASK_QUEUE,
    NAMESPACE,
    POKE,
    RETENTION_WORKFLOW_ID,
    SCHEDULER_WORKFLOW_ID,
    manager_workflow_id,
    run_workflow_id,
    task_group_workflow_id,
)
from workflows.options import WORKFLOW_TASK_WITHIN
from workflows.plugin import MitosisPlugin

Verb: TypeAlias = Close | Reopen | Cancel | Complete

VERB_TIMEOUT = timedelta(seconds=5)
"""One workflow accepts ten updates at a time; the eleventh would wait without a limit."""
POKE_TIMEOUT = timedelta(seconds=5)
CHECK_TIMEOUT = timedelta(seconds=2)
FIRST = 1
"""Priority of hosts and of the scheduler, so that thousands of groups that start do not delay them."""

WORKFLOW_TYPES: dict[WorkflowKind, str] = {
    "task_group": "TaskGroupWorkflow",
    "manager": "ManagerWorkflow",
    "scheduler": "SchedulerWorkflow",
    "retention": "RetentionWorkflow",
    "run": "RunWorkflow",
}


@dataclass(frozen=True, slots=True)
class TemporalAddress:
    """The address of a Temporal server and its credentials."""

    address: str
    namespace: str = NAMESPACE
    tls: bool = False
    api_key: str | None = field(default=None, repr=False)

    async def connect(self, plugin: MitosisPlugin | None = None, *, lazy: bool = False) -> Client:
        """Return a client of the server. A ``lazy`` one connects at its first call and cannot run workers.

        Raises:
            TemporalUnavailable: no server answers.
        """
        try:
            return await Client.connect(
                self.address,
                namespace=self.namespace,
                tls=self.tls,
                api_key=self.api_key,
                plugins=[plugin or MitosisPlugin()],
                lazy=lazy,
            )
        except RuntimeError as error:
            raise TemporalUnavailable(f"Temporal does not answer at {self.address}") from error


@dataclass(frozen=True, slots=True)
class Target:
    """The workflow of one subject: its id, arguments, and what Temporal's own tools show of it."""

    kind: WorkflowKind
    id: str
    arguments: tuple[Any, ...]
    summary: str
    memo: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    """Among the workflow tasks that wait for a control worker; 1 comes first, None is 3."""


def target(kind: WorkflowKind, subject: UUID | None = None, names: Names | None = None) -> Target:
    """Return the workflow of a task group, manager or run, or the scheduler or retention, without a subject.

    ``names``: of the subject, as far as they are known.
    """
    called = names or Names()
    if kind == "scheduler":
        return Target(
            kind, SCHEDULER_WORKFLOW_ID, (), "Assigns hosts to task groups", priority=FIRST
        )
    if kind == "retention":
        return Target(kind, RETENTION_WORKFLOW_ID, (), "Deletes what is kept no longer")
    if subject is None:
        raise ValueError(f"a {kind} needs an id")
    if kind == "manager":
        given, id_ = ManagerInput(manager_id=subject), manager_workflow_id(subject)
        summary = f"Host {called.manager or subject}"
        return Target(kind, id_, (given,), summary, called.memo, FIRST)
    if kind == "run":
        run, id_ = RunInput(run_id=subject), run_workflow_id(subject)
        name = f"{called.user_group}/{called.job}" if called.job else subject
        return Target(kind, id_, (run,), f"Run of {name}", called.memo)
    name = f"{called.user_group}/{called.task_group}" if called.task_group else subject
    group, id_ = TaskGroupInput(task_group_id=subject), task_group_workflow_id(subject)
    return Target(kind, id_, (group,), f"Task group {name}", called.memo)


class ControlClient:
    """The calls of the rest of Mitosis to our workflows. Shares the connection of ``client``."""

    def __init__(self, client: Client) -> None:
        self.temporal = client

    @classmethod
    async def open(cls, where: TemporalAddress) -> "ControlClient":
        """Return a client that connects at its first call: the server may start later."""
        return cls(await where.connect(lazy=True))

    async def start(
        self, kind: WorkflowKind, subject: UUID | None = None, names: Names | None = None
    ) -> None:
        """Start the workflow unless it runs.

        Raises:
            TemporalUnavailable: the server did not answer.
        """
        await self._start(target(kind, subject, names), signal=None)

    async def poke(
        self, kind: WorkflowKind, subject: UUID | None = None, names: Names | None = None
    ) -> None:
        """Make the workflow look again; start it if it does not run. A lost or repeated poke is harmless.

        Raises:
            TemporalUnavailable: the server did not answer.
        """
        await self._start(target(kind, subject, names), signal=POKE)

    async def execute_verb(self, task_group_id: UUID, verb: Verb) -> GroupView:
        """Close, reopen, cancel or complete a group, and return the group after it.

        Raises:
            NotFound, InvalidTransition: the store refused it.
            TemporalUnavailable: no answer within 5 s. A verb not executed by then is never executed.
        """
        timely = verb.model_copy(update={"valid_until": datetime.now(UTC) + VERB_TIMEOUT})
        group = target("task_group", task_group_id)
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            WORKFLOW_TYPES[group.kind],
            args=group.arguments,
            id=group.id,
            task_queue=CONTROL_TASK_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            static_summary=group.summary,
            task_timeout=WORKFLOW_TASK_WITHIN,
        )
        with our_errors():
            view: GroupView = await self.temporal.execute_update_with_start_workflow(
                verb.kind,
                timely,
                start_workflow_operation=start,
                result_type=GroupView,
                rpc_timeout=VERB_TIMEOUT,
            )
            return view

    async def check(self) -> None:
        """Make one round trip to the server.

        Raises:
            TemporalUnavailable: it does not answer.
        """
        with our_errors():
            if not await self.temporal.service_client.check_health(timeout=CHECK_TIMEOUT):
                raise TemporalUnavailable

    async def _start(self, it: Target, signal: str | None) -> None:
        with our_errors():
            await self.temporal.start_workflow(
                WORKFLOW_TYPES[it.kind],
                args=it.arguments,
                id=it.id,
                task_queue=CONTROL_TASK_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                static_summary=it.summary,
                memo=it.memo or None,
                priority=Priority(priority_key=it.priority),
                task_timeout=WORKFLOW_TASK_WITHIN,
                start_signal=signal,
                rpc_timeout=POKE_TIMEOUT,
            )


@contextmanager
def our_errors() -> Iterator[None]:
    """Turn errors of Temporal into ours; an invalid argument stays as it is."""
    try:
        yield
    except WorkflowUpdateFailedError as error:
        raise from_failure(error.cause) from error
    except (RPCTimeoutOrCancelledError, RuntimeError) as error:
        raise TemporalUnavailable("Temporal did not answer in time") from error
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise
        raise TemporalUnavailable(f"Temporal: {error.message}") from error


def from_failure(cause: BaseException | None) -> MitosisError:
    """Return the Mitosis error behind a failure, by the code in ``ApplicationError.type``."""
    while isinstance(cause, ActivityError):
        cause = cause.cause
    if not isinstance(cause, ApplicationError) or cause.type not in BY_CODE:
        return TemporalUnavailable(f"the workflow failed: {cause}")
    found = cause.details[0] if cause.details else {}
    facts = dict(found) if isinstance(found, dict) else {}
    error_class = BY_CODE[cause.type]
    if error_class is InvalidTransition:
        names = ("subject", "state", "event", "allowed")
        return InvalidTransition(
            **{name: facts.get(name, "") for name in names}, message=cause.message
        )
    return error_class(cause.message, **facts)
