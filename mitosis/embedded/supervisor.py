"""One supervised child process: start, ready by real use, restart after a crash, clean stop.

Owns the life of *one* process and its log file, whichever program runs in it. No threads:
the exit of a child arrives as a readable pidfd on the event loop, and the child is reaped there and
then, so it never stays a zombie (PostgreSQL refuses to start while its predecessor is one).

A child must not outlive its supervisor, also when the supervisor is killed. ``setpriv --pdeathsig`` has the
kernel signal the child when the *thread* that started it ends; a shell between checks that the
supervisor was still there once that was set, and replaces itself by the program. Start a supervisor
on a thread that lives as long as the process should.

Source: prctl(2) PR_SET_PDEATHSIG, pidfd_open(2), setpriv(1).
"""

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mitosis.concurrency import race, within
from mitosis.embedded.errors import ProgramMissing, StartFailed
from mitosis.retry_policy import Backoff, RetryPolicy

log = logging.getLogger(__name__)

RESTARTS = RetryPolicy(first_seconds=0.1, longest_seconds=10.0, jitter=0.0)
STABLE_AFTER_SECONDS = 10.0
PROBE_INTERVAL_SECONDS = 0.02
LOG_ROTATE_BYTES = 16 * 1024 * 1024

_EXEC_IF_PARENT_LIVES = '[ "$PPID" = "$1" ] || exit 0; shift; exec "$@"'

Probe = Callable[[], Awaitable[bool]]


async def always_ready() -> bool:
    """Return True: the probe of a process that is ready as soon as it runs."""
    return True


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run and how to check that it works.

    Attributes:
        ready: one try of real use; False or an exception of the client means "not yet".
        privileges: a command that runs the rest under other privileges, before everything else.
        death_signal: what the child gets when the supervisor dies without stopping it.
        stop: signals in order, each with the seconds it is given; SIGKILL is always the last.
        start_attempts: how often the first start may fail before :class:`StartFailed`.
        ready_timeout: seconds from start to ready. ``still_starting`` extends it.
        still_starting: True while a slow start is in order (crash recovery of a database).
        before_start: called before every start, also before a restart.
        umask: of the process; None keeps ours. Files of servers are for themselves alone.
    """

    name: str
    argv: Sequence[str]
    log: Path
    ready: Probe = always_ready
    env: Mapping[str, str] | None = None
    privileges: Sequence[str] = ()
    death_signal: signal.Signals = signal.SIGKILL
    stop: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0),)
    start_attempts: int = 1
    ready_timeout: float = 60.0
    still_starting: Callable[[], bool] = lambda: False
    before_start: Callable[[], None] = lambda: None
    umask: int | None = None


def pause_before_restart(backoff: Backoff, lived: float) -> float:
    """Return the seconds to wait before the next start; a stable life of the process resets them."""
    if lived >= STABLE_AFTER_SECONDS:
        backoff.reset()
    return backoff.next_pause()


def bound_to_us(spec: ProcessSpec) -> list[str]:
    """Return the argument vector that runs ``spec`` so that it dies with this process."""
    death = ["setpriv", "--pdeathsig", spec.death_signal.name.removeprefix("SIG")]
    guard = ["/bin/sh", "-c", _EXEC_IF_PARENT_LIVES, spec.name, str(os.getpid())]
    return [*spec.privileges, *death, *guard, *spec.argv]


def spawn(spec: ProcessSpec) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own (Ctrl-C reaches us, not it), output to its log.

    Raises:
        ProgramMissing: ``setpriv`` (package util-linux) is not installed.
    """
    if spec.log.exists() and spec.log.stat().st_size > LOG_ROTATE_BYTES:
        spec.log.replace(spec.log.with_suffix(".log.1"))
    output = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            bound_to_us(spec),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if spec.env is None else dict(spec.env),
            start_new_session=True,
            umask=-1 if spec.umask is None else spec.umask,
        )
    except FileNotFoundError as missing:
        raise ProgramMissing(f"{missing.filename} is needed: install util-linux") from missing
    finally:
        os.close(output)


async def exited(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a child, reap it and return its status. Cancelling leaves it running."""
    if process.poll() is not None:
        return process.returncode
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


async def stop_process(
    process: subprocess.Popen[bytes], steps: Sequence[tuple[signal.Signals, float]]
) -> int:
    """Send the signals in order until the process ends, SIGKILL last; return its status."""
    for number, seconds in steps:
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a stopped process would not receive it
        try:
            return await within(exited(process), seconds)
        except TimeoutError:
            continue
    process.kill()
    return await exited(process)


async def run_to_end(spec: ProcessSpec) -> None:
    """Run a command to its end, under the same rules as a supervised process.

    Raises:
        StartFailed: it did not end with status 0.
    """
    process = spawn(spec)
    try:
        code = await exited(process)
    finally:
        if process.returncode is None:
            await stop_process(process, spec.stop)
    if code:
        raise StartFailed(spec.name, _how(code), spec.log, log_tail(spec.log))


def log_tail(path: Path, size: int = 2000) -> str:
    try:
        return path.read_bytes()[-size:].decode(errors="replace").strip()
    except FileNotFoundError:
        return "(empty)"


class SupervisedProcess:
    """Keeps one process running from :meth:`start` to :meth:`stop`."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.starts = 0
        """Times the process became ready; 1 when it never had to be restarted."""
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the current process; None between two runs."""
        process = self._process
        return process.pid if process and process.returncode is None else None

    async def start(self) -> None:
        """Start and wait until it is ready.

        Raises:
            StartFailed: it ended or did not become ready in any of the allowed attempts.
            ProgramMissing: it cannot be executed at all.
        """
        self._task = asyncio.create_task(self._supervise(), name=f"supervise {self.spec.name}")
        try:
            await race(self._task, self._ready.wait())
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def ready(self) -> None:
        """Wait until the process answers (again)."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Stop the process and its supervision. Idempotent; never raises for a process that has ended.

        Cancelled, it kills the process instead of waiting for it.
        """
        task, self._task = self._task, None
        self._ready.clear()
        try:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            if self._process is not None:
                code = await stop_process(self._process, self.spec.stop)
                log.info("process.stopped", extra={"part": self.spec.name, "return_code": code})
                self._process = None
        except asyncio.CancelledError:
            if self._process is not None:
                self._process.kill()
            raise

    async def _supervise(self) -> None:
        backoff, failures = Backoff(RESTARTS), 0
        while True:
            began = time.monotonic()
            reason = await self._live_safely()
            failures += 1
            if self.starts == 0 and failures >= self.spec.start_attempts:
                raise StartFailed(self.spec.name, reason, self.spec.log, log_tail(self.spec.log))
            self._ready.clear()
            pause = pause_before_restart(backoff, time.monotonic() - began)
            facts = {"part": self.spec.name, "reason": reason, "restart_in_seconds": pause}
            log.warning("process.ended_unexpectedly", extra=facts)
            await asyncio.sleep(pause)

    async def _live_safely(self) -> str:
        """Run the process once; an error of the supervisor ends that run, not the supervision."""
        try:
            return await self._live()
        except Exception as error:
            if self.starts == 0:
                raise
            log.exception("process.supervision_failed", extra={"part": self.spec.name})
            if self._process is not None:
                await stop_process(self._process, self.spec.stop)
            return str(error)

    async def _live(self) -> str:
        """Run the process once and return why it ended."""
        self.spec.before_start()
        self._process = process = spawn(self.spec)
        end = asyncio.create_task(exited(process))
        try:
            if not await self._becomes_ready(end):
                if end.done():
                    return _how(end.result())
                await stop_process(process, self.spec.stop)
                return f"not ready after {self.spec.ready_timeout:g} s"
            self.starts += 1
            self._ready.set()
            facts = {"part": self.spec.name, "pid": process.pid, "start": self.starts}
            log.info("process.ready", extra=facts)
            return _how(await end)
        finally:
            end.cancel()

    async def _becomes_ready(self, end: asyncio.Task[int]) -> bool:
        deadline = time.monotonic() + self.spec.ready_timeout
        while not end.done():
            if await self.spec.ready():
                return True
            if time.monotonic() > deadline and not self.spec.still_starting():
                return False
            await asyncio.wait({end}, timeout=PROBE_INTERVAL_SECONDS)
        return False


def _how(return_code: int) -> str:
    if return_code < 0:
        return f"killed by {signal.Signals(-return_code).name}"
    return f"exit status {return_code}"
