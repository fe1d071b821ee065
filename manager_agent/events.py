"""What can happen to a lease session (events), and what its reactor wants done (instructions)."""

from dataclasses import dataclass

from manager_agent.state import Task
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.outcome import ExitReason
from mitosis.contracts.wire import CancelOrder, ClaimedTask, LeaseStanding
from mitosis.ipc.messages import EncodedReport

# --- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The pool can spawn workers."""


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker has said hello and is who it says."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The worker and everything it started is dead and reaped; all it said has been handled."""

    slot: int
    generation: int
    reason: ExitReason
    out_of_memory: bool
    at: float
    """Wall clock."""
    stderr_tail: str = ""
    """The end of the stderr of the handler it ran, with the traceback of a crash in C code."""
    running: AttemptKey | None = None
    """What it ran, even when its word of that was lost with it; None where nobody can tell."""


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
class WorkerHangs:
    """A task is not over although its timeout, or a cancel with its grace, has passed."""

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
    """The claim was given up without an answer; what it took is found by the held exchange."""

    claim_seq: int


@dataclass(frozen=True, slots=True)
class Reported:
    """These reports are acknowledged, whatever the status."""

    keys: tuple[AttemptKey, ...]
    standing: LeaseStanding


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer to a renewal that gave back ``returned``."""

    standing: LeaseStanding
    order: CancelOrder | None = None
    returned: frozenset[AttemptKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Fenced:
    """Contact was lost for longer than ``host_lost_after`` (or is there again)."""

    on: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """The agent shuts down in order; ``kill``: without waiting for running tasks."""

    kill: bool = False


Event = (
    Begin
    | WorkerReady
    | WorkerExited
    | RespawnDue
    | TaskBegan
    | TasksEnded
    | WorkerHangs
    | Claimed
    | ClaimAbandoned
    | Reported
    | Renewed
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
    """Hand these tasks to the worker."""

    slot: int
    generation: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class CancelRunning:
    slot: int
    generation: int
    key: AttemptKey
    grace_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Tell the worker to exit: after its running task, or (not graceful) ending that unreported."""

    slot: int
    generation: int
    graceful: bool = True


@dataclass(frozen=True, slots=True)
class Hold:
    """Tell the worker to start nothing (``on``), or to go on."""

    slot: int
    generation: int
    on: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to the worker and everything below it."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True)
class Claim:
    claim_seq: int
    acked_seq: int
    max_tasks: int


@dataclass(frozen=True, slots=True)
class AbandonClaim:
    """Stop waiting for the answer of the claim in flight; :class:`ClaimAbandoned` or its answer follows."""


@dataclass(frozen=True, slots=True)
class Report:
    """Journal and send."""

    reports: tuple[EncodedReport, ...]
    urgent: bool = False
    """Nothing else is in hand, so waiting for more would only cost time."""


@dataclass(frozen=True, slots=True)
class RenewNow:
    """Something is to be said, or asked, that should not wait for the next renewal."""


@dataclass(frozen=True, slots=True)
class SessionOver:
    """Nothing is left to do; ``end`` says why the session ended."""

    end: LeaseEnd


Instruction = (
    Spawn
    | SpawnLater
    | Send
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
