"""The state of a lease session: attempts held, workers, counters of the claim protocol. No I/O.

Only ``reactor.py`` and ``endings.py`` change it. An attempt is in exactly one place: ``ready``, one
worker, or ``unreported``; ``tests/support/agent_invariants.py`` checks it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.lifecycle import WorkerState
from mitosis.contracts.wire import CancelOrder
from mitosis.ipc.messages import EncodedReport

HELD_UP_LOOKS = 2
HORIZON_LOOKS = 4
"""The claim horizon (protocol P7), in looks of ``unstarted.LOOK_SECONDS``."""
LONG_ENOUGH_SECONDS = 0.01
"""The time of a message to a worker and back is nothing beside a task that takes so long."""
CREDIT_SECONDS = 0.02
MOST_CREDIT = 64
MOST_SPEC_BYTES = 256 * 1024
"""Of the specifications that a worker holds, if it holds more than one."""
START_ATTEMPTS = 3
"""After so many failed starts in a row another host is tried (protocol P7)."""


@dataclass(frozen=True, slots=True)
class Task:
    """A claimed attempt. ``spec`` is passed on without decoding it."""

    key: AttemptKey
    spec: bytes
    alone: bool = False
    announce: bool = False
    """It starts only after PostgreSQL has recorded its start (protocol P5)."""
    look: int = 0
    """Number of looks that this host had made when it first claimed the task."""


@dataclass(slots=True)
class Worker:
    """One slot of the pool. ``generation`` counts its processes."""

    slot: int
    generation: int = 0
    phase: WorkerState = WorkerState.EXITED
    unstarted: dict[AttemptKey, Task] = field(default_factory=dict)
    announced: AttemptKey | None = None
    """The unstarted attempt that is sent to it as soon as its start is recorded; nothing else is."""
    running: AttemptKey | None = None
    started_at: float = 0.0
    """Of the running task, wall clock."""
    finishing: dict[AttemptKey, float] = field(default_factory=dict)
    """Attempts that started before the running one: they have ended, their reports are on the way."""
    begun: dict[AttemptKey, Task] = field(default_factory=dict)
    """The tasks of the running attempt and of those that are finishing."""
    useful: bool = False
    """Whether this process has finished a task."""
    crashes: int = 0
    """Number of processes in a row that died without finishing a task."""
    failed_starts: int = 0
    """Number of processes in a row that ended before they were ready."""
    hung: AttemptKey | None = None
    """The attempt because of which the agent killed this process, if it did."""
    killed_for: str | None = None
    """Why it did that."""
    head_seen: AttemptKey | None = None
    """The head at the last look."""
    head_looks: int = 0
    """Number of looks since the one that first found this head."""
    recalled: bool = False
    """A :class:`~mitosis.execution.events.Recall` has not been answered."""
    recall_looks: int = 0
    """Number of looks since it was sent."""
    suppress_reports: bool = False
    """The agent kills this worker deliberately; its tasks are requeued, not reported as failed."""

    def recall(self) -> None:
        """Note that a :class:`~mitosis.execution.events.Recall` is sent."""
        self.recalled, self.recall_looks = True, 0

    def fits(self, task: Task) -> bool:
        """Return whether it may hold this task too: credit counts time, not bytes."""
        if len(task.spec) <= MOST_SPEC_BYTES // MOST_CREDIT:
            return True
        held = sum(len(other.spec) for other in self.unstarted.values())
        return held + len(task.spec) <= MOST_SPEC_BYTES

    @property
    def available(self) -> bool:
        return self.phase in (WorkerState.IDLE, WorkerState.EXECUTING)

    @property
    def alive(self) -> bool:
        return self.available or self.phase in (WorkerState.STARTING, WorkerState.STOPPING)

    @property
    def load(self) -> int:
        """Number of tasks it has to run, the running one included."""
        return len(self.unstarted) + (self.running is not None)

    @property
    def head(self) -> AttemptKey | None:
        """The attempt that runs here, or else would be the next."""
        return self.running or next(iter(self.unstarted), None)

    @property
    def held_up(self) -> bool:
        """Whether its head takes long: nothing more is queued behind it."""
        head = self.head
        return head is not None and head == self.head_seen and self.head_looks >= HELD_UP_LOOKS

    @property
    def started(self) -> Iterator[tuple[AttemptKey, float]]:
        """Attempts that have started here and are not reported, with their start times."""
        yield from self.finishing.items()
        if self.running is not None:
            yield self.running, self.started_at

    def attempts(self) -> Iterator[AttemptKey]:
        yield from self.unstarted
        yield from (key for key, _ in self.started)


@dataclass(slots=True)
class State:
    """One lease session."""

    worker_count: int
    prefetch: int | None = None
    """``task_prefetch_count`` of the plan."""
    fence_kills: bool = False
    claim_seq: int = 0
    acked_seq: int = 0
    claiming: bool = False
    end: LeaseEnd | None = None
    """None: it claims. ENDING or STOPPING: it returns what has not started, lets the rest end, reports.
    GONE: it drops what has not started and reports what ends. Only ever ENDING or STOPPING to GONE."""
    over: bool = False
    """Nothing is left to do."""
    order: CancelOrder | None = None
    fenced: bool = False
    mean_seconds: float | None = None
    """Moving mean of the duration of a task; None before the first."""
    workers: list[Worker] = field(default_factory=list)
    ready: deque[Task] = field(default_factory=deque)
    alone: deque[Task] = field(default_factory=deque)
    """Ready tasks that must run alone on the host (protocol P5)."""
    alone_running: AttemptKey | None = None
    """The attempt that runs alone or is announced for it: nothing starts beside it."""
    to_announce: deque[Task] = field(default_factory=deque)
    """Ready tasks whose start must be recorded first and that have no worker yet (protocol P5)."""
    pool_lost: bool = False
    """No worker can be started: the zygote has ended."""
    starved: str | None = None
    """Why this host can start no command for now. It takes no task until one of those that run has ended,
    which frees a process; when it holds nothing more, its lease is given up (protocol P7)."""
    cancelled: set[AttemptKey] = field(default_factory=set)
    """Running attempts that a user has cancelled."""
    unreported: dict[AttemptKey, EncodedReport] = field(default_factory=dict)
    returned: set[AttemptKey] = field(default_factory=set)
    """Returned unstarted, until a renewal that names them is acknowledged."""
    repeated: set[AttemptKey] = field(default_factory=set)
    """Attempts that run again because the report of their end was lost with their worker."""
    held: set[AttemptKey] = field(default_factory=set)
    """Every attempt of the session: ready, with a worker, or unreported."""
    finished: int = 0
    asked: int = 0
    """Number of tasks that the last claim asked for."""
    dry: bool = False
    """The last claim was answered with less than that."""
    trust: int | None = None
    """Number of tasks that have ended since then: what is known about the tasks that come now."""
    looks: int = 0
    given_back: dict[int, int] = field(default_factory=dict)
    """Task returned because it waited for too long → :attr:`Task.look`; forgotten after a horizon."""
    begun: int = 0
    """Number of tasks that have begun since the last look."""
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=HORIZON_LOOKS))
    """Number of tasks that began between any two of the last looks."""

    @property
    def stalled(self) -> bool:
        """Whether no task has begun for a whole claim horizon."""
        return not (self.begun or any(self.recent)) and len(self.recent) == HORIZON_LOOKS

    @property
    def active(self) -> bool:
        """Whether the session may claim and start tasks."""
        return self.end is None and not self.over

    def __post_init__(self) -> None:
        if not self.workers:
            self.workers = [Worker(slot) for slot in range(self.worker_count)]

    @property
    def credit(self) -> int:
        """Number of tasks a worker may hold: one if they take long, else CREDIT_SECONDS of work.

        One too while tasks run again, so that no other task can cost them their report a second time.
        """
        if self.repeated or self.mean_seconds is None or self.mean_seconds >= LONG_ENOUGH_SECONDS:
            return 1
        most = min(MOST_CREDIT, int(CREDIT_SECONDS / max(self.mean_seconds, 1e-6)))
        return most if self.trust is None else min(most, 1 + self.trust)

    @property
    def cannot_start(self) -> bool:
        """Whether no worker has become ready, several times in every slot."""
        return all(worker.failed_starts >= START_ATTEMPTS for worker in self.workers)

    @property
    def announced(self) -> list[AttemptKey]:
        """Return the attempts that wait until their start is recorded."""
        return [worker.announced for worker in self.workers if worker.announced is not None]

    def queue_of(self, task: Task) -> deque[Task]:
        """Return the queue in which a ready task waits for a worker."""
        if task.alone:
            return self.alone
        return self.to_announce if task.announce else self.ready

    @property
    def running(self) -> int:
        return sum(worker.running is not None for worker in self.workers)

    def started_before(self, wall: float) -> list[AttemptKey]:
        """Return the running attempts that started before ``wall``."""
        return [
            worker.running
            for worker in self.workers
            if worker.running is not None and worker.started_at < wall
        ]
