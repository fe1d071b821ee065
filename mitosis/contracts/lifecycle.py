"""Every lifecycle, written once: states, events and the table of allowed transitions.

Workflows, SQL guards, the API, the CLI and the reference documentation read these tables; no other module
lists transitions. The module imports only the standard library so that the worker can use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from mitosis.contracts.errors import InvalidTransition

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Lifecycle(Generic[S, E]):
    """A finite state machine as data: ``table[(state, event)]`` is the state after the event."""

    name: str
    initial: S
    table: Mapping[tuple[S, E], S]

    def after(self, state: S, event: E) -> S:
        """Return the state after ``event``.

        Raises:
            InvalidTransition: the event is not allowed in this state; the error lists those that are.
        """
        try:
            return self.table[state, event]
        except KeyError:
            raise InvalidTransition(
                subject=self.name, state=state, event=event, allowed=self.events(state)
            ) from None

    def sources(self, event: E) -> tuple[S, ...]:
        """Return the states in which ``event`` is allowed: the WHERE of a guarded UPDATE."""
        return tuple(state for (state, candidate) in self.table if candidate == event)

    def events(self, state: S) -> tuple[E, ...]:
        """Return the events allowed in ``state``, in table order."""
        return tuple(event for (source, event) in self.table if source == state)

    @property
    def states(self) -> tuple[S, ...]:
        """All states of the enum, in definition order."""
        return tuple(type(self.initial))

    @property
    def terminal(self) -> frozenset[S]:
        """The states without a transition out of them."""
        return frozenset(self.states) - {source for (source, _) in self.table}

    def mermaid(self) -> str:
        """Return the table as a Mermaid ``stateDiagram-v2``."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {a} --> {b}: {event}" for (a, event), b in self.table.items()]
        lines += [f"    {state} --> [*]" for state in self.states if state in self.terminal]
        return "\n".join(lines)


class TaskGroupState(StrEnum):
    """The state of a task group."""

    OPEN = "open"
    """Accepts tasks. Left by ``close``, by the auto-close timer or by ``cancel``."""
    CLOSED = "closed"
    """Accepts no new tasks; the present ones may finish. ``reopen`` opens it again."""
    COMPLETE = "complete"
    """Closed and every task finished; it cannot be reopened. Hosts clean up, then the group is *settled*."""
    CANCELLED = "cancelled"
    """A user cancelled it: no more tasks are claimed. It is settled like a complete group."""


class TaskGroupEvent(StrEnum):
    CLOSE = "close"
    REOPEN = "reopen"
    COMPLETE = "complete"
    CANCEL = "cancel"


TASK_GROUP: Lifecycle[TaskGroupState, TaskGroupEvent] = Lifecycle(
    "task group",
    TaskGroupState.OPEN,
    {
        (TaskGroupState.OPEN, TaskGroupEvent.CLOSE): TaskGroupState.CLOSED,
        (TaskGroupState.OPEN, TaskGroupEvent.CANCEL): TaskGroupState.CANCELLED,
        (TaskGroupState.CLOSED, TaskGroupEvent.REOPEN): TaskGroupState.OPEN,
        (TaskGroupState.CLOSED, TaskGroupEvent.COMPLETE): TaskGroupState.COMPLETE,
        (TaskGroupState.CLOSED, TaskGroupEvent.CANCEL): TaskGroupState.CANCELLED,
    },
)


class TaskGroupResult(StrEnum):
    """How a settled group ended; the first of these rules that holds."""

    CANCELLED = "cancelled"
    """A user cancelled it."""
    SETUP_FAILED = "setup_failed"
    """It has tasks that never ran because its setup hook failed on the hosts that tried."""
    TASKS_FAILED = "tasks_failed"
    """At least one task failed or was cancelled."""
    TEARDOWN_DEGRADED = "teardown_degraded"
    """All tasks succeeded, but a host could not be cleaned."""
    SUCCESS = "success"
    """All tasks succeeded and every host was cleaned."""


class TaskState(StrEnum):
    """The state of a task. The first four are in ``open_task``, the others in ``task_result``."""

    READY = "ready"
    """May be claimed. A claimed task that has not started is still shown as ready."""
    DELAYED = "delayed"
    """Becomes ready at a later time (a retry with a delay)."""
    BLOCKED = "blocked"
    """Becomes ready when the tasks have succeeded on which it depends."""
    RUNNING = "running"
    """Claimed under a lease by a manager."""
    SUCCEEDED = "succeeded"
    """Exit status 0, or the handler returned."""
    FAILED = "failed"
    """Its last allowed attempt failed."""
    CANCELLED = "cancelled"
    """A user ended it (the task, or its group), or a task on which it depends has not succeeded."""


class ListedState(StrEnum):
    """The state of the tasks of a list: that of a task, or ``held``."""

    READY = TaskState.READY
    DELAYED = TaskState.DELAYED
    BLOCKED = TaskState.BLOCKED
    RUNNING = TaskState.RUNNING
    HELD = "held"
    """Claimed by a host: running there already (``running``), or about to be started (``ready``)."""
    SUCCEEDED = TaskState.SUCCEEDED
    FAILED = TaskState.FAILED
    CANCELLED = TaskState.CANCELLED


class TaskEvent(StrEnum):
    CLAIM = "claim"
    REQUEUE = "requeue"
    RETRY = "retry"
    RETRY_LATER = "retry_later"
    DUE = "due"
    FREE = "free"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


TASK: Lifecycle[TaskState, TaskEvent] = Lifecycle(
    "task",
    TaskState.READY,
    {
        (TaskState.READY, TaskEvent.CLAIM): TaskState.RUNNING,
        (TaskState.READY, TaskEvent.CANCEL): TaskState.CANCELLED,
        # A late report counts until the task is claimed again (protocol P2).
        (TaskState.READY, TaskEvent.SUCCEED): TaskState.SUCCEEDED,
        (TaskState.READY, TaskEvent.FAIL): TaskState.FAILED,
        (TaskState.DELAYED, TaskEvent.DUE): TaskState.READY,
        (TaskState.DELAYED, TaskEvent.CANCEL): TaskState.CANCELLED,
        (TaskState.BLOCKED, TaskEvent.FREE): TaskState.READY,
        (TaskState.BLOCKED, TaskEvent.CANCEL): TaskState.CANCELLED,
        (TaskState.RUNNING, TaskEvent.REQUEUE): TaskState.READY,
        (TaskState.RUNNING, TaskEvent.RETRY): TaskState.READY,
        (TaskState.RUNNING, TaskEvent.RETRY_LATER): TaskState.DELAYED,
        (TaskState.RUNNING, TaskEvent.SUCCEED): TaskState.SUCCEEDED,
        (TaskState.RUNNING, TaskEvent.FAIL): TaskState.FAILED,
        (TaskState.RUNNING, TaskEvent.CANCEL): TaskState.CANCELLED,
    },
)


class ManagerState(StrEnum):
    """What a host is doing. Derived from its lease, environment and contact; never stored."""

    IDLE = "idle"
    """In contact, no lease."""
    PREPARING = "preparing"
    """Has a lease; the setup hook has not finished."""
    EXECUTING = "executing"
    """Has an active lease and a ready environment."""
    CLEANUP = "cleanup"
    """Its teardown hook runs; the host is offered nothing new until the hook ends."""
    DRAINING = "draining"
    """An operator drains it: it finishes its tasks and gets no offers."""
    OFFLINE = "offline"
    """Silent for longer than ``host_lost_after``, or it said goodbye."""


class ManagerEvent(StrEnum):
    ASSIGN = "assign"
    PREPARED = "prepared"
    SETUP_FAILED = "setup_failed"
    RELEASE = "release"
    CLEAN = "clean"
    CLEANED = "cleaned"
    DRAIN = "drain"
    RESUME = "resume"
    LOSE = "lose"
    HELLO = "hello"


MANAGER: Lifecycle[ManagerState, ManagerEvent] = Lifecycle(
    "manager",
    ManagerState.IDLE,
    {
        (ManagerState.IDLE, ManagerEvent.ASSIGN): ManagerState.PREPARING,
        (ManagerState.IDLE, ManagerEvent.CLEAN): ManagerState.CLEANUP,
        (ManagerState.IDLE, ManagerEvent.DRAIN): ManagerState.DRAINING,
        (ManagerState.IDLE, ManagerEvent.LOSE): ManagerState.OFFLINE,
        (ManagerState.PREPARING, ManagerEvent.PREPARED): ManagerState.EXECUTING,
        (ManagerState.PREPARING, ManagerEvent.SETUP_FAILED): ManagerState.IDLE,
        (ManagerState.PREPARING, ManagerEvent.RELEASE): ManagerState.IDLE,
        (ManagerState.PREPARING, ManagerEvent.LOSE): ManagerState.OFFLINE,
        (ManagerState.EXECUTING, ManagerEvent.RELEASE): ManagerState.IDLE,
        (ManagerState.EXECUTING, ManagerEvent.DRAIN): ManagerState.DRAINING,
        (ManagerState.EXECUTING, ManagerEvent.LOSE): ManagerState.OFFLINE,
        (ManagerState.CLEANUP, ManagerEvent.CLEANED): ManagerState.IDLE,
        (ManagerState.CLEANUP, ManagerEvent.LOSE): ManagerState.OFFLINE,
        (ManagerState.DRAINING, ManagerEvent.RESUME): ManagerState.IDLE,
        (ManagerState.DRAINING, ManagerEvent.LOSE): ManagerState.OFFLINE,
        (ManagerState.OFFLINE, ManagerEvent.HELLO): ManagerState.IDLE,
    },
)


class LeaseState(StrEnum):
    """A lease is the right of one holder to claim tasks of one group, named by its epoch."""

    OFFERED = "offered"
    """Written by an assignment round; the host has not taken it. Counts as live."""
    ACTIVE = "active"
    """Taken: claims are allowed while ``alive_until`` lies ahead."""
    ENDING = "ending"
    """Accepts no claims; running tasks finish (or are killed) and are reported."""
    ENDED = "ended"
    """Over. No task is held under this epoch."""


class LeaseEvent(StrEnum):
    TAKE = "take"
    WITHDRAW = "withdraw"
    END = "end"
    RELEASE = "release"
    LOSE = "lose"


LEASE: Lifecycle[LeaseState, LeaseEvent] = Lifecycle(
    "lease",
    LeaseState.OFFERED,
    {
        (LeaseState.OFFERED, LeaseEvent.TAKE): LeaseState.ACTIVE,
        (LeaseState.OFFERED, LeaseEvent.WITHDRAW): LeaseState.ENDED,
        (LeaseState.ACTIVE, LeaseEvent.END): LeaseState.ENDING,
        (LeaseState.ACTIVE, LeaseEvent.RELEASE): LeaseState.ENDED,
        (LeaseState.ACTIVE, LeaseEvent.LOSE): LeaseState.ENDED,
        (LeaseState.ENDING, LeaseEvent.RELEASE): LeaseState.ENDED,
        (LeaseState.ENDING, LeaseEvent.LOSE): LeaseState.ENDED,
    },
)


class EnvironmentState(StrEnum):
    """What the setup of a group left on a host (protocol P9)."""

    PREPARING = "preparing"
    """The setup hook runs, or a host died while it ran."""
    READY = "ready"
    """Setup succeeded. Without a lease this is a dormant environment."""
    TEARING_DOWN = "tearing_down"
    """The teardown hook runs; no task of the group may start on the host."""
    GONE = "gone"
    """Cleaned, or its machine no longer exists."""
    OWED = "owed"
    """The host was lost; teardown is the first thing at its next hello."""

    @property
    def is_debt(self) -> bool:
        """Whether the host has a teardown to finish, also of a group that goes on."""
        return self in (EnvironmentState.OWED, EnvironmentState.TEARING_DOWN)


class EnvironmentEvent(StrEnum):
    PREPARED = "prepared"
    SETUP_FAILED = "setup_failed"
    TEAR_DOWN = "tear_down"
    CLEANED = "cleaned"
    LOSE = "lose"
    POSTPONE = "postpone"
    """The teardown hook cannot be started for now: the teardown has not begun."""
    PREPARE_AGAIN = "prepare_again"


ENVIRONMENT: Lifecycle[EnvironmentState, EnvironmentEvent] = Lifecycle(
    "environment",
    EnvironmentState.PREPARING,
    {
        (EnvironmentState.PREPARING, EnvironmentEvent.PREPARED): EnvironmentState.READY,
        (EnvironmentState.PREPARING, EnvironmentEvent.SETUP_FAILED): EnvironmentState.TEARING_DOWN,
        (EnvironmentState.PREPARING, EnvironmentEvent.TEAR_DOWN): EnvironmentState.TEARING_DOWN,
        (EnvironmentState.PREPARING, EnvironmentEvent.LOSE): EnvironmentState.OWED,
        (EnvironmentState.READY, EnvironmentEvent.SETUP_FAILED): EnvironmentState.TEARING_DOWN,
        (EnvironmentState.READY, EnvironmentEvent.TEAR_DOWN): EnvironmentState.TEARING_DOWN,
        (EnvironmentState.READY, EnvironmentEvent.LOSE): EnvironmentState.OWED,
        (EnvironmentState.TEARING_DOWN, EnvironmentEvent.CLEANED): EnvironmentState.GONE,
        (EnvironmentState.TEARING_DOWN, EnvironmentEvent.LOSE): EnvironmentState.OWED,
        (EnvironmentState.TEARING_DOWN, EnvironmentEvent.POSTPONE): EnvironmentState.OWED,
        (EnvironmentState.OWED, EnvironmentEvent.TEAR_DOWN): EnvironmentState.TEARING_DOWN,
        (EnvironmentState.OWED, EnvironmentEvent.CLEANED): EnvironmentState.GONE,
        (EnvironmentState.GONE, EnvironmentEvent.PREPARE_AGAIN): EnvironmentState.PREPARING,
    },
)


class HookState(StrEnum):
    """One run of a setup or teardown hook on one host."""

    WAITING = "waiting"
    """Waiting for infrastructure (a resource that cannot be fetched now); retried with backoff."""
    RUNNING = "running"
    """Its command runs."""
    SUCCEEDED = "succeeded"
    """Exit status 0."""
    FAILED = "failed"
    """Non-zero exit, a signal, its timeout, or it could not be started: never retried."""


class HookEvent(StrEnum):
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"


HOOK: Lifecycle[HookState, HookEvent] = Lifecycle(
    "hook run",
    HookState.WAITING,
    {
        (HookState.WAITING, HookEvent.START): HookState.RUNNING,
        (HookState.WAITING, HookEvent.FAIL): HookState.FAILED,
        (HookState.RUNNING, HookEvent.SUCCEED): HookState.SUCCEEDED,
        (HookState.RUNNING, HookEvent.FAIL): HookState.FAILED,
    },
)


class WorkerState(StrEnum):
    """One worker process of a managed pool."""

    STARTING = "starting"
    """Forked; it has not said hello."""
    IDLE = "idle"
    """Holds no task."""
    EXECUTING = "executing"
    """Runs or holds at least one task."""
    STOPPING = "stopping"
    """It finishes its task and exits."""
    CRASHED = "crashed"
    """Died unexpectedly; its slot is respawned with the same pins."""
    EXITED = "exited"
    """Stopped in order."""


class WorkerEvent(StrEnum):
    HELLO = "hello"
    RUN = "run"
    FINISH = "finish"
    STOP = "stop"
    CRASH = "crash"
    EXIT = "exit"
    RESPAWN = "respawn"


WORKER: Lifecycle[WorkerState, WorkerEvent] = Lifecycle(
    "worker process",
    WorkerState.STARTING,
    {
        (WorkerState.STARTING, WorkerEvent.HELLO): WorkerState.IDLE,
        (WorkerState.STARTING, WorkerEvent.STOP): WorkerState.STOPPING,
        (WorkerState.STARTING, WorkerEvent.CRASH): WorkerState.CRASHED,
        (WorkerState.IDLE, WorkerEvent.RUN): WorkerState.EXECUTING,
        (WorkerState.IDLE, WorkerEvent.STOP): WorkerState.STOPPING,
        (WorkerState.IDLE, WorkerEvent.CRASH): WorkerState.CRASHED,
        (WorkerState.EXECUTING, WorkerEvent.FINISH): WorkerState.IDLE,
        (WorkerState.EXECUTING, WorkerEvent.STOP): WorkerState.STOPPING,
        (WorkerState.EXECUTING, WorkerEvent.CRASH): WorkerState.CRASHED,
        (WorkerState.STOPPING, WorkerEvent.EXIT): WorkerState.EXITED,
        (WorkerState.STOPPING, WorkerEvent.CRASH): WorkerState.CRASHED,
        (WorkerState.CRASHED, WorkerEvent.RESPAWN): WorkerState.STARTING,
    },
)


class RunState(StrEnum):
    """The state of a run (S001-01)."""

    PENDING = "pending"
    """Stored; it waits until its job has fewer runs than ``max_concurrent_runs``."""
    RUNNING = "running"
    """The tasks of its first steps exist."""
    SUCCESS = "success"
    """Every step has succeeded or was skipped."""
    FAILED = "failed"
    """A step has failed, or a limit of time or of failures has ended the run."""
    CANCELLED = "cancelled"
    """A user cancelled it."""


class RunEvent(StrEnum):
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


RUN: Lifecycle[RunState, RunEvent] = Lifecycle(
    "run",
    RunState.PENDING,
    {
        (RunState.PENDING, RunEvent.START): RunState.RUNNING,
        (RunState.PENDING, RunEvent.FAIL): RunState.FAILED,
        (RunState.PENDING, RunEvent.CANCEL): RunState.CANCELLED,
        (RunState.RUNNING, RunEvent.SUCCEED): RunState.SUCCESS,
        (RunState.RUNNING, RunEvent.FAIL): RunState.FAILED,
        (RunState.RUNNING, RunEvent.CANCEL): RunState.CANCELLED,
    },
)


class StepState(StrEnum):
    """The state of a step of a run."""

    WAITING = "waiting"
    """Steps that it comes after have not ended."""
    RUNNING = "running"
    """Its tasks exist, or are being created."""
    SUCCEEDED = "succeeded"
    """Every task has succeeded; an array without tasks too."""
    FAILED = "failed"
    """A task has not succeeded, its tasks could not be created, or a limit has ended it."""
    SKIPPED = "skipped"
    """Its conditions did not hold; no failure."""
    CANCELLED = "cancelled"
    """The run was cancelled, or ended by a limit, before the step could end by itself."""


class StepEvent(StrEnum):
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    SKIP = "skip"
    CANCEL = "cancel"


STEP: Lifecycle[StepState, StepEvent] = Lifecycle(
    "step",
    StepState.WAITING,
    {
        (StepState.WAITING, StepEvent.START): StepState.RUNNING,
        (StepState.WAITING, StepEvent.FAIL): StepState.FAILED,
        (StepState.WAITING, StepEvent.SKIP): StepState.SKIPPED,
        (StepState.WAITING, StepEvent.CANCEL): StepState.CANCELLED,
        (StepState.RUNNING, StepEvent.SUCCEED): StepState.SUCCEEDED,
        (StepState.RUNNING, StepEvent.FAIL): StepState.FAILED,
        (StepState.RUNNING, StepEvent.CANCEL): StepState.CANCELLED,
    },
)

ALL = (TASK_GROUP, TASK, MANAGER, LEASE, ENVIRONMENT, HOOK, WORKER, RUN, STEP)
"""Every lifecycle, for documentation and for the tests that walk the tables."""
