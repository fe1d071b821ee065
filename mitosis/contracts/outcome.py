"""How tasks, workers and hooks end, and when a failure is final. Standard library only.

Two counters are kept apart (decision C-18): ``exit_failures`` follows the task's own retry policy,
``crash_failures`` (death by signal, of the command or of its worker) follows the signal table below.
"""

import signal
from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Why an attempt did not succeed."""

    EXIT_CODE = "exit_code"
    """The command exited with a status other than 0."""
    SIGNAL = "signal"
    """The command was killed by a signal that we did not send."""
    TIMEOUT = "timeout"
    """It ran longer than its timeout and was stopped."""
    STUCK = "stuck"
    """Its executor saw no progress for too long, so it was stopped."""
    PROCESS_LIMIT = "process_limit"
    """It had more processes and threads than a worker may have, and was killed."""
    OUT_OF_MEMORY = "out_of_memory"
    """SIGKILL together with an ``oom_kill`` count of its cgroup."""
    WORKER_LOST = "worker_lost"
    """The worker process died while it ran the task."""
    WORKERS_LOST = "workers_lost"
    """All workers of its host ended at once, with their zygote; charged as a lost host (protocol P5)."""
    HOST_LOST = "host_lost"
    """The host went silent while it ran."""
    HANDLER_ERROR = "handler_error"
    """The Python handler raised; the traceback is kept."""
    RESULT_NOT_STORABLE = "result_not_storable"
    """The handler returned what cannot be stored and read back: no JSON, too large, or nested too deeply."""
    NOT_STARTED = "not_started"
    """It could not be started: command not found, no permission, no such folder, bad handler name."""
    RESULT_REFUSED = "result_refused"
    """It ended, but the API refuses its report for good, as one that is too large: never tried again."""
    CANCELLED = "cancelled"
    """A user cancelled it."""
    DEPENDENCY_FAILED = "dependency_failed"
    """A task on which it depends has failed or was cancelled, so it was cancelled without a start."""
    TERMINATED = "terminated"
    """It, or its worker, died of a SIGTERM or SIGINT that we did not send; charged to nothing (C-29)."""


CRASHES = frozenset({FailureKind.SIGNAL, FailureKind.OUT_OF_MEMORY, FailureKind.WORKER_LOST})
"""Counted by the signal table, not by the retry policy of the task."""


class ExitKind(StrEnum):
    SUCCESS = "success"
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ExitReason:
    """How a process ended. ``number`` is the exit status or the signal number; None when unknown."""

    kind: ExitKind
    number: int | None = None
    core_dumped: bool = False

    @classmethod
    def from_wait_status(cls, status: int) -> "ExitReason":
        """Decode a status of ``waitpid``. Source: wait(2), WIFEXITED and WIFSIGNALED."""
        import os

        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            return cls(ExitKind.EXIT_CODE, code) if code else cls(ExitKind.SUCCESS, 0)
        if os.WIFSIGNALED(status):
            return cls(ExitKind.SIGNAL, os.WTERMSIG(status), os.WCOREDUMP(status))
        return cls(ExitKind.UNKNOWN)

    def __str__(self) -> str:
        match self.kind:
            case ExitKind.SUCCESS:
                return "success"
            case ExitKind.EXIT_CODE:
                return f"exit code {self.number}"
            case ExitKind.SIGNAL:
                return f"killed by {signal_name(self.number or 0)}"
            case ExitKind.UNKNOWN:
                return "unknown exit"


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9; ``signal 40`` if the number has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_FATAL_AT_TWO = frozenset({signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE})
_NEVER_FATAL = frozenset({signal.SIGTERM, signal.SIGINT})
_FATAL_AT_THREE = 3

MAX_TERMINATIONS = 20
"""At this many deaths by SIGTERM or SIGINT in a row a task ends, unless it names another number (C-29)."""
TERMINATION_PAUSE_SECONDS = 1.0
"""The pause after the first such death; doubled for each further one."""
FIRST_PAUSE_SECONDS = 0.1
"""The pause after the second failure of a task without ``delay_seconds``; doubled for each further one."""
LONGEST_PAUSE_SECONDS = 300.0
"""Pauses that no user has chosen grow no further."""


def is_termination(reason: ExitReason) -> bool:
    """Return whether the process died of SIGTERM or SIGINT: that is no crash (C-29)."""
    return reason.kind is ExitKind.SIGNAL and reason.number in _NEVER_FATAL


def crash_limit(reason: ExitReason) -> int | None:
    """Return the number of crash failures that fails the task; None = never (requirements S000-60...64)."""
    if reason.kind is ExitKind.SUCCESS:
        return None
    if reason.kind is ExitKind.SIGNAL:
        if reason.number in _NEVER_FATAL:
            return None
        if reason.number in _FATAL_AT_TWO:
            return 2
    return _FATAL_AT_THREE


LOST_ALONE = 2
"""At this many losses of its host or agent while it was started, a task runs alone (protocol P5)."""
LOST_LIMIT = LOST_ALONE + 1
"""At this many losses a task fails as poison: the last one came while it ran alone."""
LOST_ONCE = "its host or its agent was lost while it ran"
LOST_AGAIN = f"{LOST_ONCE}, for the second time: from now on it runs alone on its host"
POISON = (
    f"poison: {LOST_ONCE} {LOST_LIMIT} times, the last time while nothing else ran there;"
    " it is not tried again"
)
WORKERS_LOST_AGAIN = "lost for the second time, so from now on it runs alone on its host: "
WORKERS_POISON = (
    f"poison: lost {LOST_LIMIT} times, the last time while nothing else ran there;"
    " it is not tried again: "
)
SERVICE_LOST_ONCE = "the process of its worker service was lost while it ran"
SERVICE_LOST_AGAIN = f"{SERVICE_LOST_ONCE}, for the second time: from now on it runs alone there"
SERVICE_POISON = (
    f"poison: {SERVICE_LOST_ONCE} {LOST_LIMIT} times, the last time while nothing else ran there;"
    " it is not tried again"
)
