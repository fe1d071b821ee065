"""The ZeroMQ protocol between a manager agent and its worker processes, in one file.

Two unions named by direction. Each message is a msgpack array with a one-byte version in front
(``codec.py``). A worker is a DEALER whose identity is ``slot:generation``; the agent is one ROUTER.

Flow: the worker sends :class:`Hello`; the agent sends :class:`RunTasks` while the worker holds fewer
tasks than its credit; the worker runs them in order and sends :class:`TaskStarted` for each that is not
over within milliseconds, and :class:`TasksFinished` after them (in batches). Control messages carry a
``message_id`` and are answered by :class:`Acknowledge`; a broadcast is a loop of directed messages
(architecture, section 5). Tasks that wait behind a long one go back: :class:`TakeBack`, answered by
:class:`TakenBack`.
"""

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import TaskReport

PROTOCOL_VERSION = 3

_encode_report = msgspec.json.Encoder().encode


class Message(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Base of all messages. array_like: fields may be added at the end with a default only."""


class RunTask(msgspec.Struct, array_like=True, frozen=True):
    """One task to run. ``spec`` is the JSON of a :class:`mitosis.contracts.task.TaskSpec`."""

    key: AttemptKey
    spec: bytes


# --- manager to worker --------------------------------------------------------------------------


class RunTasks(Message, frozen=True):
    """Run these tasks, in this order, after those the worker holds."""

    tasks: tuple[RunTask, ...]


class TakeBack(Message, frozen=True):
    """Give back every task that has not begun; :class:`TakenBack` answers, also when there is none."""


class CancelTask(Message, frozen=True):
    """Stop this task: SIGTERM to its process group, ``grace_seconds``, SIGKILL to the rest.

    A task that has not started is dropped and reported as cancelled. For an unknown task the message
    is only acknowledged.
    """

    message_id: int
    key: AttemptKey
    grace_seconds: float
    reason: str


class Shutdown(Message, frozen=True):
    """Graceful: finish and report the running task. Otherwise stop it as :class:`CancelTask`, unreported.

    In both cases unstarted tasks are dropped; :class:`Goodbye` and exit status 0 follow.
    """

    message_id: int
    graceful: bool
    grace_seconds: float = 10.0


class Pause(Message, frozen=True):
    """Start no task until :class:`Resume`; a running one continues."""

    message_id: int


class Resume(Message, frozen=True):
    message_id: int


class Configure(Message, frozen=True):
    """Change settings of a running worker; None leaves a setting unchanged."""

    message_id: int
    output_tail_bytes: int | None = None


class FollowOutput(Message, frozen=True):
    """Send the output of this attempt as :class:`TaskOutput`, or (not ``on``) stop sending it.

    For an attempt that does not run the message is only acknowledged.
    """

    message_id: int
    key: AttemptKey
    on: bool


class OutputTaken(Message, frozen=True):
    """The API keeps the whole output up to ``position``; ``dropped``: nothing reads it, send no more.

    Not acknowledged.
    """

    key: AttemptKey
    stream: str
    position: int
    dropped: bool = False


ManagerToWorker = (
    RunTasks
    | TakeBack
    | CancelTask
    | Shutdown
    | Pause
    | Resume
    | Configure
    | FollowOutput
    | OutputTaken
)


# --- worker to manager --------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """First message. ``cpus`` is read back with ``sched_getaffinity`` after pinning."""

    slot: int
    generation: int
    pid: int
    cpus: tuple[int, ...]


class TaskStarted(Message, frozen=True):
    """This task runs, and was not over at once. The death of this worker counts as a failed attempt of it."""

    key: AttemptKey
    started_at: float
    overdue_seconds: float | None = None
    """The worker hangs if the task is not finished after this time (timeout, grace and a margin)."""


class TaskNotStarted(Message, frozen=True):
    """A task that was said to start could not: its host has no process for it. It has not run."""

    key: AttemptKey
    reason: str


class TakenBack(Message, frozen=True):
    """These tasks have not begun and never will here, in the order in which the worker held them."""

    keys: tuple[AttemptKey, ...]


class EncodedReport(msgspec.Struct, array_like=True, frozen=True):
    """One ended attempt: the facts that the agent decides by, and the report as the API takes it.

    The worker encodes the bytes, or the agent for a worker that died. The agent, its journal and the
    HTTP request pass them on without decoding them.
    """

    key: AttemptKey
    started_at: float | None
    finished_at: float | None
    report: bytes
    """JSON of a :class:`mitosis.contracts.wire.TaskReport`."""

    @classmethod
    def of(cls, report: TaskReport) -> "EncodedReport":
        """Encode a report."""
        key = AttemptKey(report.task_id, report.attempt)
        return cls(key, report.started_at, report.finished_at, _encode_report(report))


class TasksFinished(Message, frozen=True):
    """Sent when the local queue is empty, at 32 reports, or when the first of them is 10 ms old."""

    tasks: tuple[EncodedReport, ...]


class TaskOutput(Message, frozen=True):
    """Output of a followed attempt: at most the kept tail of a stream, ten times a second.

    ``offset`` counts from the first byte of the stream; a gap means that bytes were lost between.
    """

    key: AttemptKey
    stream: str
    """``stdout`` or ``stderr``."""
    offset: int
    data: bytes
    whole: bool = False
    """A piece of the whole output, in order and without gaps; answered by :class:`OutputTaken`."""


class Acknowledge(Message, frozen=True):
    """The control message with this id has arrived."""

    message_id: int


class Goodbye(Message, frozen=True):
    """Last message of a worker that exits on request, or for ``renewed_for`` by itself."""

    slot: int
    generation: int
    renewed_for: str | None = None
    """Why the next task of this slot needs a new process; unstarted tasks are dropped as at a Shutdown."""


WorkerToManager = (
    Hello
    | TaskStarted
    | TaskNotStarted
    | TakenBack
    | TasksFinished
    | TaskOutput
    | Acknowledge
    | Goodbye
)
