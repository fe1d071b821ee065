"""The ZeroMQ protocol between a manager agent and its worker processes, in one file.

Two unions named by direction. Each message is a msgpack array with a one-byte version in front
(``codec.py``). A worker is a DEALER whose identity is ``slot:generation``; the agent is one ROUTER.

Flow: the worker says :class:`Hello`; the agent sends :class:`RunTasks` as long as the worker holds
fewer tasks than its credit; the worker runs them in order and says :class:`TaskStarted` before and
:class:`TasksFinished` after (in batches). Control messages carry a ``message_id`` and are answered by
:class:`Acknowledge`; a broadcast is a loop of directed messages (architecture, section 5).
"""

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.wire import TaskReport

PROTOCOL_VERSION = 2

_encode_report = msgspec.json.Encoder().encode


class Message(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Base of all messages. array_like: fields may be added at the end with a default only."""


class RunTask(msgspec.Struct, array_like=True, frozen=True):
    """One task to run. ``spec`` is the JSON of a :class:`mitosis.contracts.task.TaskSpec`."""

    key: AttemptKey
    spec: bytes


# --- manager to worker --------------------------------------------------------------------------


class RunTasks(Message, frozen=True):
    """Run these, in this order, after what you hold."""

    tasks: tuple[RunTask, ...]


class CancelTask(Message, frozen=True):
    """Stop this task: SIGTERM to its process group, ``grace_seconds``, SIGKILL to all that is left.

    A task that has not started is dropped and reported as cancelled; one that is over is acknowledged.
    """

    message_id: int
    key: AttemptKey
    grace_seconds: float
    reason: str


class Shutdown(Message, frozen=True):
    """Graceful: finish and report the running task. Otherwise end it as by :class:`CancelTask`, unreported.

    In both cases what has not started is dropped; :class:`Goodbye` and exit status 0 follow.
    """

    message_id: int
    graceful: bool
    grace_seconds: float = 10.0


class Pause(Message, frozen=True):
    """Start no further task until :class:`Resume`; a running one goes on."""

    message_id: int


class Resume(Message, frozen=True):
    message_id: int


class Configure(Message, frozen=True):
    """Change settings of a running worker; None leaves one as it is."""

    message_id: int
    output_tail_bytes: int | None = None


class FollowOutput(Message, frozen=True):
    """Send what this attempt has written and writes as :class:`TaskOutput`, or (not ``on``) stop that.

    Of an attempt that does not run it is acknowledged and forgotten.
    """

    message_id: int
    key: AttemptKey
    on: bool


ManagerToWorker = RunTasks | CancelTask | Shutdown | Pause | Resume | Configure | FollowOutput


# --- worker to manager --------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """First message. ``cpus`` is what ``sched_getaffinity`` gave after pinning (read back)."""

    slot: int
    generation: int
    pid: int
    cpus: tuple[int, ...]


class TaskStarted(Message, frozen=True):
    """Sent before the task runs: from now on the death of this worker costs the task an attempt."""

    key: AttemptKey
    started_at: float
    overdue_seconds: float | None = None
    """Not finished after this long (the task's timeout, grace and a margin): the worker hangs, kill it."""


class EncodedReport(msgspec.Struct, array_like=True, frozen=True):
    """One ended attempt: the facts that the agent decides by, and the report as the API takes it.

    The bytes are made once, by the worker (or by the agent for a worker that died). The agent, its
    journal and the HTTP request pass them on unread.
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
    """Flushed when the local queue runs empty, at 8 tasks, or when the first of them is 5 ms old."""

    tasks: tuple[EncodedReport, ...]


class TaskOutput(Message, frozen=True):
    """Bytes that a followed attempt has written; at most what is kept of its end, ten times a second.

    ``offset`` counts all that it has written there: a jump means that it wrote faster than that.
    """

    key: AttemptKey
    stream: str
    """``stdout`` or ``stderr``."""
    offset: int
    data: bytes


class Acknowledge(Message, frozen=True):
    """The control message with this id was taken."""

    message_id: int


class Goodbye(Message, frozen=True):
    """Last message of a worker that exits as told."""

    slot: int
    generation: int


WorkerToManager = Hello | TaskStarted | TasksFinished | TaskOutput | Acknowledge | Goodbye
