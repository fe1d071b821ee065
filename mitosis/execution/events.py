"""The events of a lease session, and the instructions of its reactor."""

from dataclasses import dataclass

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.outcome import ExitReason
from mitosis.contracts.wire import CancelOrder, ClaimedTask, LeaseStanding, StopOrder
from mitosis.execution.state import Task
from mitosis.ipc.messages import EncodedReport

# --- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The pool is ready to spawn workers."""


@dataclass(frozen=True, slots=True)
class PoolLost:
    """The zygote has ended, and every worker with it: none can be started before the next :class:`Begin`."""


@dataclass(frozen=True, slots=True)
class Paused:
    """No slot can be started for now, so no task is taken. None: it is tried again."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker has sent its hello, and its identity has been checked."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The worker and all its descendants are dead and reaped; all its messages have been handled."""

    slot: int
    generation: int
    reason: ExitReason
    out_of_memory: bool
    at: float
    """Wall clock."""
    stderr_tail: str = ""
    """The end of the stderr of its handler, with the traceback of a crash in C code."""
    running: AttemptKey | None = None
    """The attempt it ran, even if its TaskStarted was lost; None if it ran none, or it is unknown."""
    begun: frozenset[AttemptKey] = frozenset()
    """The attempts that it had begun, from shared memory: starts of short tasks are not said."""
    stopped_seconds: float | None = None
    """A signal had stopped it for longer than this, so the agent killed it."""
    headless: bool = False
    """Its main thread had ended while others lived, so the agent killed it."""
    zygote: ExitReason | None = None
    """How its zygote ended, and every worker with it: by which task is not known. None: it goes on."""


@dataclass(frozen=True, slots=True)
class RespawnDue:
    """The delay of a :class:`SpawnLater` is over."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class TaskBegan:
    slot: int
    generation: int
    key: AttemptKey
    at: float
    """Wall clock."""


@dataclass(frozen=True, slots=True)
class TasksEnded:
    slot: int
    generation: int
    reports: tuple[EncodedReport, ...]


@dataclass(frozen=True, slots=True)
class TaskNotBegun:
    """A task that was said to have begun has not: this host has no process for it (protocol P7)."""

    slot: int
    generation: int
    key: AttemptKey
    reason: str


@dataclass(frozen=True, slots=True)
class TasksTakenBack:
    """The answer to a :class:`Recall`: these attempts have not begun and never will in this worker."""

    slot: int
    generation: int
    keys: tuple[AttemptKey, ...]


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The worker can begin nothing more of what it held when :class:`Withdraw` was given."""

    slot: int
    generation: int
    running: AttemptKey | None
    """What it had begun by then and not ended."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Another ``unstarted.LOOK_SECONDS`` have passed."""

    in_contact: bool
    """Whether the API can be reached: what is returned now becomes claimable at once."""


@dataclass(frozen=True, slots=True)
class WorkerHangs:
    """A task still runs after its timeout, or after a cancel and its grace."""

    slot: int
    generation: int
    key: AttemptKey
    why: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to the claim with this number."""

    claim_seq: int
    standing: LeaseStanding
    tasks: tuple[ClaimedTask, ...]


@dataclass(frozen=True, slots=True)
class ClaimAbandoned:
    """The claim was given up without an answer; the held exchange finds the tasks it took."""

    claim_seq: int


@dataclass(frozen=True, slots=True)
class Reported:
    """The API has answered these reports, with any status."""

    keys: tuple[AttemptKey, ...]
    standing: LeaseStanding


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer to a renewal that returned the ``returned`` attempts."""

    standing: LeaseStanding
    order: CancelOrder | None = None
    returned: frozenset[AttemptKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Superseded:
    """The end of these attempts no longer counts: those that run are stopped."""

    keys: frozenset[AttemptKey]
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class StopsOrdered:
    """A user cancelled these attempts; the event is repeated until they are reported or returned."""

    orders: tuple[StopOrder, ...]


@dataclass(frozen=True, slots=True)
class Announced:
    """The answer to a renewal that announced the starts of these attempts."""

    keys: frozenset[AttemptKey]
    recorded: frozenset[AttemptKey]
    """Those whose start is recorded; the others are not, or no longer, claimed by this host."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Contact has been lost for longer than ``host_lost_after`` (``on``), or is there again."""

    on: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """The agent shuts down in order; ``kill``: running tasks get SIGTERM now, and SIGKILL after the grace."""

    kill: bool = False
    grace_seconds: float = 0.0


Event = (
    Begin
    | PoolLost
    | Paused
    | WorkerReady
    | WorkerExited
    | RespawnDue
    | TaskBegan
    | TasksEnded
    | TaskNotBegun
    | TasksTakenBack
    | Withdrawn
    | Looked
    | WorkerHangs
    | Claimed
    | ClaimAbandoned
    | Reported
    | Renewed
    | Superseded
    | StopsOrdered
    | Announced
    | Fenced
    | Stop
)

# --- instructions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spawn:
    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class SpawnLater:
    """Raise :class:`RespawnDue` after ``seconds``."""

    slot: int
    generation: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    """Send these tasks to the worker."""

    slot: int
    generation: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Take back every task that the worker has not begun; :class:`TasksTakenBack` follows."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Keep a worker that does not answer from beginning what it holds; :class:`Withdrawn` follows."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class CancelRunning:
    slot: int
    generation: int
    key: AttemptKey
    grace_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Ask the worker to exit: after its running task, or (not graceful) ending that task unreported."""

    slot: int
    generation: int
    graceful: bool = True
    grace_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Hold:
    """Pause the worker (``on``) or resume it."""

    slot: int
    generation: int
    on: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL to the worker and all its descendants."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class Claim:
    claim_seq: int
    acked_seq: int
    max_tasks: int
    max_late: int = 0
    """Number of idle workers. The API answers this many if it had to wait for a task; 0: it does not wait."""


@dataclass(frozen=True, slots=True)
class AbandonClaim:
    """Stop waiting for the claim in flight; :class:`ClaimAbandoned` or its answer follows."""


@dataclass(frozen=True, slots=True)
class Report:
    """Journal these reports and send them."""

    reports: tuple[EncodedReport, ...]
    urgent: bool = False
    """Send without waiting for more: the session holds no other attempt."""


@dataclass(frozen=True, slots=True)
class RenewNow:
    """Renew now instead of waiting for the next interval."""


@dataclass(frozen=True, slots=True)
class SessionOver:
    """Nothing is left to do; ``end`` says why the session ended."""

    end: LeaseEnd


Instruction = (
    Spawn
    | SpawnLater
    | Send
    | Recall
    | Withdraw
    | CancelRunning
    | Dismiss
    | Hold
    | Kill
    | Claim
    | AbandonClaim
    | Report
    | RenewNow
    | SessionOver
)
