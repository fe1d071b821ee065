"""Command tasks: runs argv as a child process, until no process that it started is left.

The child is the leader of a new session and process group; Python's vfork path starts it (0.6 ms; never
``preexec_fn`` or ``user``, which fork). The worker is a child subreaper and runs one task at a time, so
*every* child it has belongs to the running command: when ``waitpid`` reports that there is none
(ECHILD), the slot is free. For a command without leftovers this check costs one system call.

A :class:`CommandRun` does no waiting itself: the worker's loop polls :meth:`CommandRun.fds` and calls
:meth:`CommandRun.step` when one is readable or :meth:`CommandRun.wakes_at` has come.
"""

import errno
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitosis.contracts.outcome import ExitKind, ExitReason, FailureKind
from mitosis.contracts.task import TaskSpec, command_argv
from mitosis.worker.orphans import reap_orphans_of
from mitosis.worker.output import PipeOutput
from mitosis.worker.process_tree import kill_below, reap_any
from mitosis.worker.report import Ended, Usage
from mitosis.worker.stopping import Stop

# The exit codes of a shell. Source: POSIX, Shell Command Language, 2.8.2.
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
TOO_LONG = (
    "arguments and environment are longer than the kernel allows (128 KiB for one word, about 2 MB"
    " in all): put the data into a file"
)
"""Source: execve(2), "Limits on size of arguments and environment"."""

_PROGRAM_SHOWN = 200
_GROUP_POLL_SECONDS = 0.01
_KILL_POLL_SECONDS = 0.002
_UNKILLABLE_AFTER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Streams:
    """The standard streams of the commands of a slot."""

    stdin_fd: int
    stdout: PipeOutput
    stderr: PipeOutput


class CommandRun:
    """One started command."""

    def __init__(
        self,
        spec: TaskSpec,
        environment: Mapping[str, str],
        folder: str,
        to: Streams,
        waited_seconds: float = 0.0,
    ) -> None:
        """Start it.

        Args:
            spec: has a ``command``.
            environment: the whole environment of the command.
            folder: its working directory, unless the spec has one.
            to: the streams of the slot.
            waited_seconds: how much of the timeout the wait for a process has used.

        Raises:
            OSError, ValueError: it could not be started; see :func:`not_started`.
        """
        assert spec.command is not None  # noqa: S101 - the caller chose by it
        self._streams = to
        self._started_at = time.time()
        self._process = subprocess.Popen(
            command_argv(spec),
            stdin=to.stdin_fd,
            stdout=to.stdout.write_fd,
            stderr=to.stderr.write_fd,
            env=environment,
            cwd=spec.working_directory or folder,
            close_fds=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._pidfd = _pidfd_of(self.pid)
        self._grace_seconds = spec.kill_grace_seconds
        self._timeout_seconds = spec.timeout_seconds
        self._timeout_at = _after(spec.timeout_seconds, waited_seconds)
        self._stop: Stop | None = None
        self._reason: ExitReason | None = None
        self._usage: Usage | None = None
        self._mask: set[int] = set()
        self._killing_since: float | None = None
        self.killed = 0
        """The most processes that one walk had to kill."""
        self.ended: Ended | None = None

    def fds(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when :meth:`step` is due."""
        return () if self._reason or self._pidfd is None else (self._pidfd,)

    def wakes_at(self) -> float | None:
        """Return the time (``time.monotonic``) of the next :meth:`step` without an event."""
        now = time.monotonic()
        if self._killing_since is not None:
            return now + min(
                _GROUP_POLL_SECONDS * 10, _KILL_POLL_SECONDS + now - self._killing_since
            )
        if self._reason is None:
            due = self._timeout_at if self._stop is None else self._stop.deadline
            if self._pidfd is None:
                return min(now + _GROUP_POLL_SECONDS, math.inf if due is None else due)
            return due
        return now if self._stop is None else min(self._stop.deadline, now + _GROUP_POLL_SECONDS)

    def stop(self, kind: FailureKind, message: str, grace_seconds: float | None = None) -> None:
        """Send SIGTERM to the process group now, and SIGKILL to the rest after the grace.

        Does nothing to a command that has ended; a second call can only shorten the grace.
        """
        self._reap_leader()
        if self._reason is not None and self._stop is None:
            return
        grace = self._grace_seconds if grace_seconds is None else grace_seconds
        if self._stop is not None:
            self._stop.shorten(grace)
            return
        self._stop = Stop.begin(kind, message, grace)
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process cannot act on SIGTERM
            self._signal_group(number)

    def step(self) -> None:
        """Do what is due; set :attr:`ended` when no process of the command is left."""
        self._reap_leader()
        now = time.monotonic()
        if self._reason is None:
            if self._stop is not None and self._stop.is_due:
                self._kill_everything()
            elif self._stop is None and self._timeout_at is not None and now >= self._timeout_at:
                message = f"ran longer than its timeout of {self._timeout_seconds:g} s"
                self.stop(FailureKind.TIMEOUT, message)
        elif reap_any() or self._gave_up():
            self.ended = self._to_ended()
        elif not self._group_has_grace():
            self._kill_everything()

    def _reap_leader(self) -> None:
        if self._reason is not None:
            return
        reap_orphans_of(self.pid)
        self._mask = os.sched_getaffinity(self.pid)  # also of a process that waits to be reaped
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid:
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._reason = ExitReason.from_wait_status(status)
            self._usage = Usage.of(usage)
            if self._pidfd is not None:
                os.close(self._pidfd)

    def _group_has_grace(self) -> bool:
        """Check that after SIGTERM the process group still has time to end by itself."""
        if self._stop is None or self._stop.is_due:
            return False
        return self._signal_group(0)

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _kill_everything(self) -> None:
        if self._killing_since is None:
            self._killing_since = time.monotonic()
        self.killed = max(self.killed, len(kill_below(os.getpid())))

    def _gave_up(self) -> bool:
        since = self._killing_since
        return since is not None and time.monotonic() - since > _UNKILLABLE_AFTER_SECONDS

    def _to_ended(self) -> Ended:
        assert self._reason is not None  # noqa: S101 - only called when the leader was reaped
        kind, message = _verdict(self._reason, self._stop)
        if self._gave_up():
            message = f"{message or 'succeeded'}; a process it left behind could not be killed"
        is_signal = self._reason.kind is ExitKind.SIGNAL
        return Ended(
            kind=kind,
            message=message,
            exit_code=None if is_signal else self._reason.number,
            signal=self._reason.number if is_signal else None,
            started_at=self._started_at,
            finished_at=time.time(),
            stdout=self._streams.stdout.take(),
            stderr=self._streams.stderr.take(),
            usage=self._usage,
            mask=self._mask,
        )


def not_started(spec: TaskSpec, environment: Mapping[str, str], error: Exception) -> Ended:
    """Return the report of a command that did not start: the reason, and the exit code of a shell."""
    now = time.time()
    message, code = _explain(spec, environment, error)
    return Ended(
        kind=FailureKind.NOT_STARTED,
        message=message,
        exit_code=code,
        started_at=now,
        finished_at=now,
    )


def no_process(spec: TaskSpec, error: Exception) -> str:
    """Return why a command could not be started now; its arguments may be secret."""
    program = next(iter(command_argv(spec)), "")[:_PROGRAM_SHOWN]
    return f"no process could be made for {program}: {getattr(error, 'strerror', error)}"


def _explain(
    spec: TaskSpec, environment: Mapping[str, str], error: Exception
) -> tuple[str, int | None]:
    program = next(iter(command_argv(spec)), "")
    folder = spec.working_directory
    if folder is not None and (problem := _folder_problem(Path(folder))) is not None:
        return problem, EXIT_NOT_EXECUTABLE
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _what_is_missing(program, folder or ".", environment), EXIT_NOT_FOUND
    if isinstance(error, PermissionError):
        return f"no permission to execute {program}", EXIT_NOT_EXECUTABLE
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"cannot execute {program}: {TOO_LONG}", EXIT_NOT_EXECUTABLE
    why = error.strerror if isinstance(error, OSError) else error
    return f"cannot execute {program}: {why}", EXIT_NOT_EXECUTABLE


def _folder_problem(folder: Path) -> str | None:
    if not folder.exists():
        return f"working_directory {folder} does not exist on this host"
    if not folder.is_dir():
        return f"working_directory {folder} is not a folder"
    if not os.access(folder, os.X_OK):
        return f"no permission to enter working_directory {folder}"
    return None


def _what_is_missing(program: str, folder: str, environment: Mapping[str, str]) -> str:
    if "/" not in program:
        return f"command not found: {program} (PATH is {environment.get('PATH', os.defpath)})"
    if Path(folder, program).exists():
        return f"the interpreter that {program} names in its first line is missing"
    return f"command not found: {program}"


def _verdict(reason: ExitReason, stop: Stop | None) -> tuple[FailureKind | None, str | None]:
    if stop is not None:
        return stop.kind, f"{stop.message} ({reason})"
    if reason.kind is ExitKind.SUCCESS:
        return None, None
    core = " (core dumped)" if reason.core_dumped else ""
    kind = FailureKind.EXIT_CODE if reason.kind is ExitKind.EXIT_CODE else FailureKind.SIGNAL
    return kind, f"{reason}{core}"


def _pidfd_of(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None if no more can be opened.

    The process has begun, so that a failure here must not look like one of its start.
    """
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _after(seconds: float | None, used: float) -> float | None:
    return None if seconds is None else time.monotonic() + seconds - used
