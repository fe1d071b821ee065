"""Talking to our workflows from outside: connect, poke, carry out a verb. Used by the API and the relay.

Errors of Temporal become errors of ours here. Search attributes are set by the workflows themselves, so
that a poke does not fail in a namespace that has none yet.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from mitosis.contracts.control import (
    Cancel,
    Close,
    Complete,
    GroupView,
    ManagerInput,
    Reopen,
    TaskGroupInput,
)
from mitosis.contracts.errors import BY_CODE, InvalidTransition, MitosisError, TemporalUnavailable
from mitosis.contracts.temporal_names import (
    CONTROL_TASK_QUEUE,
    NAMESPACE,
    POKE,
    SCHEDULER_WORKFLOW_ID,
    manager_workflow_id,
    task_group_workflow_id,
)
from workflows.options import WORKFLOW_TASK_WITHIN
from workflows.plugin import MitosisPlugin

Kind: TypeAlias = Literal["task_group", "manager", "scheduler"]
Verb: TypeAlias = Close | Reopen | Cancel | Complete

VERB_TIMEOUT = timedelta(seconds=5)
"""Ten updates may be under way on one workflow; the eleventh would wait without a limit."""
POKE_TIMEOUT = timedelta(seconds=5)
CHECK_TIMEOUT = timedelta(seconds=2)

WORKFLOW_TYPES: dict[Kind, str] = {
    "task_group": "TaskGroupWorkflow",
    "manager": "ManagerWorkflow",
    "scheduler": "SchedulerWorkflow",
}


@dataclass(frozen=True, slots=True)
class TemporalAddress:
    """Where a Temporal server is, and how to be let in."""

    address: str
    namespace: str = NAMESPACE
    tls: bool = False
    api_key: str | None = field(default=None, repr=False)

    async def connect(self, plugin: MitosisPlugin | None = None, *, lazy: bool = False) -> Client:
        """A client of the server. A ``lazy`` one connects with its first call, and cannot run workers.

        Raises:
            TemporalUnavailable: nobody answers there.
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
    """The workflow of one subject: how it is called, started and shown."""

    kind: Kind
    id: str
    arguments: tuple[Any, ...]
    summary: str


def target(kind: Kind, subject: UUID | None = None) -> Target:
    """The workflow of a task group, of a manager, or (without a subject) the scheduler."""
    if kind == "scheduler":
        return Target(kind, SCHEDULER_WORKFLOW_ID, (), "Gives hosts to task groups")
    if subject is None:
        raise ValueError(f"a {kind} has an id")
    if kind == "manager":
        given = ManagerInput(manager_id=subject)
        return Target(kind, manager_workflow_id(subject), (given,), f"Host {subject}")
    group = TaskGroupInput(task_group_id=subject)
    return Target(kind, task_group_workflow_id(subject), (group,), f"Task group {subject}")


class ControlClient:
    """What the rest of Mitosis may ask of our workflows. Cheap; shares the connection of ``client``."""

    def __init__(self, client: Client) -> None:
        self.temporal = client

    @classmethod
    async def open(cls, where: TemporalAddress) -> "ControlClient":
        """Connects with the first call, so the server may start later than we do."""
        return cls(await where.connect(lazy=True))

    async def start(self, kind: Kind, subject: UUID | None = None) -> None:
        """Make sure that the workflow runs.

        Raises:
            TemporalUnavailable: it could not be asked.
        """
        await self._start(target(kind, subject), signal=None)

    async def poke(self, kind: Kind, subject: UUID | None = None) -> None:
        """Make the workflow look again, and run if it does not. Lost, doubled and late ones are harmless.

        Raises:
            TemporalUnavailable: it could not be asked.
        """
        await self._start(target(kind, subject), signal=POKE)

    async def execute_verb(self, task_group_id: UUID, verb: Verb) -> GroupView:
        """Close, reopen, cancel or complete a group; the group after it.

        Raises:
            NotFound, InvalidTransition: as the store says.
            TemporalUnavailable: no answer within 5 s. A verb that has not been carried out by then never is.
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
        with _our_errors():
            view: GroupView = await self.temporal.execute_update_with_start_workflow(
                verb.kind,
                timely,
                start_workflow_operation=start,
                result_type=GroupView,
                rpc_timeout=VERB_TIMEOUT,
            )
            return view

    async def check(self) -> None:
        """One round trip: does the server answer?

        Raises:
            TemporalUnavailable: it does not.
        """
        with _our_errors():
            if not await self.temporal.service_client.check_health(timeout=CHECK_TIMEOUT):
                raise TemporalUnavailable

    async def _start(self, it: Target, signal: str | None) -> None:
        with _our_errors():
            await self.temporal.start_workflow(
                WORKFLOW_TYPES[it.kind],
                args=it.arguments,
                id=it.id,
                task_queue=CONTROL_TASK_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                static_summary=it.summary,
                task_timeout=WORKFLOW_TASK_WITHIN,
                start_signal=signal,
                rpc_timeout=POKE_TIMEOUT,
            )


@contextmanager
def _our_errors() -> Iterator[None]:
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
    """The error of ours behind a failure: found by the code in ``ApplicationError.type``."""
    while isinstance(cause, ActivityError):
        cause = cause.cause
    if not isinstance(cause, ApplicationError) or cause.type not in BY_CODE:
        return TemporalUnavailable(f"the workflow could not carry it out: {cause}")
    found = cause.details[0] if cause.details else {}
    facts = dict(found) if isinstance(found, dict) else {}
    error_class = BY_CODE[cause.type]
    if error_class is InvalidTransition:
        names = ("subject", "state", "event", "allowed")
        return InvalidTransition(
            **{name: facts.get(name, "") for name in names}, message=cause.message
        )
    return error_class(cause.message, **facts)
