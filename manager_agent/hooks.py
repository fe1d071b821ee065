"""Runs one setup hook, teardown hook or probe: a command in a new session, with a timeout and bounded output.

Owns all that the hook has started, daemons too, until none of it runs; only what a setup leaves running
stays if it has succeeded. Knows no leases and no HTTP. If the agent dies before that, a guard beside the hook
kills all of it (:mod:`mitosis.execution.hook_guard`). A hook that leaves a daemon behind ends with its own
process, even if the daemon keeps the pipes open. A hook whose process cannot be made now has not run: its
start is repeated for some seconds.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from mitosis.concurrency import wait_event
from mitosis.contracts.agent_http import HookReport
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.process_starts import start_may_pass
from mitosis.contracts.variables import without_settings
from mitosis.execution import hook_guard
from mitosis.execution.leftovers import HOOK_RUN, end_hook_run
from mitosis.retry_policy import RetryPolicy

TAIL_BYTES = 16 * 1024
GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL after a timeout."""
START_SECONDS = 10.0
"""For so long a start is repeated while the host has no process for it."""
LOOK_SECONDS = 0.05
"""Between two looks whether a hook has ended, if the agent can open no descriptor for its process."""
KILL_SECONDS = 5.0
"""For so long the agent kills what a hook has started; then its guard goes on."""
STARTS = RetryPolicy(first_seconds=0.1, longest_seconds=2.0)
_CHUNK = 64 * 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HookResult:
    """How a hook ended. Any failure is an execution failure (S002-137), unless it has not ``begun``."""

    reason: ExitReason | None
    """None: it could not be started."""
    message: str
    stdout_tail: str
    stderr_tail: str
    started_at: datetime
    seconds: float
    begun: bool = True
    """False: for now no process can be made for it, so it has not run."""
    refused: bool = False
    """True: it was not started (``manager_agent.step_deaths``)."""

    @classmethod
    def refusal(cls, reason: str) -> "HookResult":
        """Return the result of a hook that is not started, which is a failure."""
        return cls(None, reason, "", "", datetime.now(UTC), 0.0, refused=True)

    @property
    def succeeded(self) -> bool:
        return self.reason is not None and self.reason.kind is ExitKind.SUCCESS and not self.message

    def report(self) -> HookReport:
        """Return the result as the API takes it."""
        number = self.reason.number if self.reason is not None else None
        kind = self.reason.kind if self.reason is not None else None
        ended: Literal["succeeded", "failed"] = "succeeded" if self.succeeded else "failed"
        return HookReport(
            state=ended if self.begun else "waiting",
            exit_code=number if kind in (ExitKind.SUCCESS, ExitKind.EXIT_CODE) else None,
            signal=number if kind is ExitKind.SIGNAL else None,
            message=self.message or None,
            stdout_tail=self.stdout_tail or None,
            stderr_tail=self.stderr_tail or None,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a hook that has started."""

    mark: str
    """The value of MITOSIS_HOOK_RUN in the environment of all its processes."""
    process: "subprocess.Popen[bytes]"
    """The command."""
    guard: "subprocess.Popen[bytes] | None"


class _Tail:
    """Keeps the last TAIL_BYTES that arrive on a pipe."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read, self.write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read, False)
        self._kept = bytearray()
        self._dropped = 0
        self._loop.add_reader(self._read, self.drain)

    def close_write(self) -> None:
        """Close this process's own end: what is written comes from the hook and its children only."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def drain(self) -> None:
        """Read the bytes that have arrived; at most 64 MiB at a time, to let other callbacks run."""
        for _ in range(1024):
            try:
                data = os.read(self._read, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._read)
                return
            self._kept += data
            surplus = len(self._kept) - TAIL_BYTES
            if surplus > 0:
                del self._kept[:surplus]
                self._dropped += surplus

    def close(self) -> str:
        self.close_write()
        self.drain()
        self._loop.remove_reader(self._read)
        os.close(self._read)
        text = self._kept.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        return f"[{self._dropped} bytes before this]\n{text}" if self._dropped else text


async def run_hook(
    hook: HookSpec, variables: Mapping[str, str], *, keeps_daemons: bool = False
) -> HookResult:
    """Run the command to its end, then end what it has left running: SIGTERM, SIGKILL after 5 s.

    Cancelling kills the command and all it has started at once.

    Args:
        hook: command, environment, folder and timeout.
        variables: MITOSIS_* context, added last (docs/design-notes.md). The value of MITOSIS_HOOK_RUN is of
            this run alone.
        keeps_daemons: what it has left running stays if it has succeeded.
    """
    until, failures = time.monotonic() + START_SECONDS, 0
    while True:
        result = await _run_once(hook, variables, keeps_daemons)
        pause = STARTS.pause(failures)
        if result.begun or time.monotonic() + pause > until:
            return result
        failures += 1
        await asyncio.sleep(pause)


async def _run_once(
    hook: HookSpec, variables: Mapping[str, str], keeps_daemons: bool
) -> HookResult:
    started_at, begun_at = datetime.now(UTC), time.monotonic()
    tails: list[_Tail] = []
    run: _Run | None = None
    try:
        tails += [_Tail()]
        tails += [_Tail()]
        run = _start(hook, variables, *tails)
    except (OSError, ValueError) as error:
        _close(tails)
        message = f"cannot start {hook.command[0]}: {getattr(error, 'strerror', None) or error}"
        seconds, begun = time.monotonic() - begun_at, not start_may_pass(error)
        return HookResult(None, message, "", "", started_at, seconds, begun)
    async with _guarded(run):
        try:
            status, timed_out = await _wait(run.process, hook.timeout.total_seconds())
        finally:
            stdout, stderr = _close(tails)
        reason = ExitReason.from_wait_status(status)
        message = _message(reason, timed_out, hook.timeout.total_seconds())
        seconds = time.monotonic() - begun_at
        result = HookResult(reason, message, stdout, stderr, started_at, seconds)
        if not (keeps_daemons and result.succeeded):
            await end_hook_run(run.mark)
    return result


def _close(tails: list[_Tail]) -> list[str]:
    return [tail.close() for tail in tails]


def _message(reason: ExitReason, timed_out: bool, timeout: float) -> str:
    if timed_out:
        return f"it ran longer than its timeout of {timeout:g} s"
    return "" if reason.kind is ExitKind.SUCCESS else str(reason)


def _start(hook: HookSpec, variables: Mapping[str, str], out: _Tail, err: _Tail) -> "_Run":
    """Start the guard and the command.

    Raises:
        OSError, ValueError: neither runs.
    """
    mark = variables[HOOK_RUN]
    guard = _start_guard(mark)
    try:
        process = subprocess.Popen(
            list(hook.command),
            stdin=subprocess.DEVNULL,
            stdout=out.write,
            stderr=err.write,
            cwd=hook.working_directory,
            env=without_settings(os.environ) | hook.environment | dict(variables),
            start_new_session=True,
        )
    except BaseException:
        _end_guard(guard)
        raise
    finally:
        out.close_write()
        err.close_write()
    return _Run(mark, process, guard)


def _start_guard(run: str) -> "subprocess.Popen[bytes] | None":
    """Start what ends the processes of this run when the agent dies; None if its program is missing.

    Raises:
        OSError: for now no process can be made for it.
    """
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(hook_guard.__file__)), f"{HOOK_RUN}={run}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=without_settings(os.environ),
            start_new_session=True,
        )
    except OSError as error:
        if start_may_pass(error):
            raise
        log.warning("hook.unguarded", extra={"reason": str(error)})
        return None


def _end_guard(guard: "subprocess.Popen[bytes] | None") -> None:
    """Kill it before its pipe is closed: the end of the pipe means that the agent has died."""
    if guard is None:
        return
    guard.kill()
    guard.wait()
    if guard.stdin is not None:
        guard.stdin.close()


@contextlib.asynccontextmanager
async def _guarded(run: _Run) -> AsyncIterator[None]:
    """Kill all that the run has started if the block does not come to its end; then end its guard."""
    killed = True
    try:
        yield
    except BaseException:
        killed = await _kill_all(run)
        raise
    finally:
        if killed:
            _end_guard(run.guard)
        else:
            _leave_to_guard(run)


def _leave_to_guard(run: _Run) -> None:
    """Let the guard go on killing; ``subprocess`` reaps it when another process is started."""
    log.error("hook.not_killed", extra={"hook_run": run.mark})
    if run.guard is not None and run.guard.stdin is not None:
        run.guard.stdin.close()


async def _kill_all(run: _Run) -> bool:
    """Send SIGKILL until nothing of it is left; return False after :data:`KILL_SECONDS`.

    Only called while an exception is handled, so another cancellation is dropped: the first is raised. The
    looks at the processes are made in this thread, as a host may have none for another thread.
    """
    entry = os.fsencode(f"{HOOK_RUN}={run.mark}")
    deadline, looks_without = time.monotonic() + KILL_SECONDS, 0
    while looks_without < hook_guard.LOOKS_WITHOUT:
        if time.monotonic() > deadline:
            return False
        found = hook_guard.kill_found(entry) or run.process.poll() is None
        looks_without = 0 if found else looks_without + 1
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(hook_guard.PAUSE_SECONDS)
    return True


async def _wait(process: "subprocess.Popen[bytes]", timeout: float) -> tuple[int, bool]:
    """Return the wait status, and whether the hook was stopped by its timeout.

    Its process group is killed if this is cancelled; the caller reaps it then.
    """
    ended = asyncio.Event()
    try:
        with _watched(process.pid, ended):
            timed_out = not await wait_event(ended, timeout)
            if timed_out:
                _signal_group(process.pid, signal.SIGTERM)
                await wait_event(ended, GRACE_SECONDS)
                _signal_group(process.pid, signal.SIGKILL)
                await ended.wait()
    except BaseException:
        _signal_group(process.pid, signal.SIGKILL)
        raise
    _, status = os.waitpid(process.pid, 0)  # noqa: ASYNC222 - it is dead
    process.returncode = os.waitstatus_to_exitcode(status)
    return status, timed_out


@contextlib.contextmanager
def _watched(pid: int, ended: asyncio.Event) -> Iterator[None]:
    """Set ``ended`` when the process ends."""
    loop = asyncio.get_running_loop()
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # no more can be opened: the hook runs all the same
        looks = loop.create_task(_look_for_end(pid, ended))
        try:
            yield
        finally:
            looks.cancel()
        return
    try:
        loop.add_reader(pidfd, ended.set)
        yield
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def _look_for_end(pid: int, ended: asyncio.Event) -> None:
    while not _has_ended(pid):
        await wait_event(ended, LOOK_SECONDS)
    ended.set()


def _has_ended(pid: int) -> bool:
    """Return whether a child waits to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(pid: int, number: int) -> None:
    """Signal the group of a process that is not reaped, so its number is not in use by another.

    One that runs as another user (``sudo``) is not signalled.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
