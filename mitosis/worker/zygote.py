"""The zygote: imports the handlers once, forks the workers, and is the guardian of its descendants.

It has no threads and makes no ZeroMQ context. Every process of the lease session is its descendant and,
since it and all workers are child subreapers, stays one. That gives the agent two guarantees:

* ``Exited`` is sent when the worker *and all its descendants* have ended. The zygote adopts what a dead
  worker leaves, and a child that is no worker can only be such a leftover.
* When the agent's end of the socket closes, for any reason, the whole tree is killed.
"""

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from resource import struct_rusage

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.worker import cpuset
from mitosis.worker.evidence import Evidence
from mitosis.worker.full_limits import full_limit
from mitosis.worker.linux import become_subreaper
from mitosis.worker.preload import PreloadError, preload
from mitosis.worker.process import EXIT_BROKEN, run_worker
from mitosis.worker.process_limit import remove_groups
from mitosis.worker.process_state import watch_changes
from mitosis.worker.process_tree import (
    below,
    kill_all_below,
    kill_below,
    pidfd_or_kill,
    process_parents,
)
from mitosis.worker.settings import WorkerSettings, pids_groups, session_environment
from mitosis.worker.signals import default_signals
from mitosis.worker.wakeup import SignalWakeup
from mitosis.worker.zygote_protocol import (
    AGENT_FD,
    MAX_PACKET_BYTES,
    Exited,
    ImportFailed,
    KillWorker,
    ProcessUsage,
    Ready,
    Setup,
    Spawn,
    Spawned,
    SpawnFailed,
    ZygoteToAgent,
    decode_for_zygote,
    encode,
)

EXIT_IMPORT_FAILED = 3

_GUARDIAN_SECONDS = 10.0
_SWEEP_SECONDS = 0.002
_UNKILLABLE_AFTER_SECONDS = 5.0
_AGENT_CHECK_SECONDS = 0.5
_MAX_STDERR_TAIL_BYTES = 16 * 1024
"""Three times as much, if none of it can be decoded, still fits into one packet."""


@dataclass(slots=True)
class _Child:
    """A worker that is running, or dead with leftovers still to be killed."""

    slot: int
    generation: int
    pid: int
    pidfd: int
    evidence: Evidence
    popen: subprocess.Popen[bytes] | None
    """Of an exec'd worker; kept so that its destructor does not wait for the process."""


@dataclass(slots=True)
class _Death:
    child: _Child
    wait_status: int
    usage: struct_rusage
    stderr_tail: str
    running: AttemptKey | None
    at: float
    leftovers: set[int] = field(default_factory=set)


class Zygote:
    """Spawns, reaps, and kills on behalf of one agent."""

    def __init__(self, agent: socket.socket, setup: Setup, *, forks: bool) -> None:
        self._agent, self._setup, self._forks = agent, setup, forks
        self._children: dict[int, _Child] = {}
        self._deaths: list[_Death] = []
        self._cpus = os.sched_getaffinity(0)
        self._own = below(os.getpid(), process_parents())
        """Processes that the imports of handler modules started: not leftovers of a worker."""
        self._wakeup = SignalWakeup()
        self._poll = select.poll()
        for fd in (agent.fileno(), self._wakeup.fd):
            self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Spawn, kill and reap workers until the agent's end of the socket is closed."""
        while True:
            ready = [
                fd for fd, _ in self._poll.poll(_SWEEP_SECONDS * 1000 if self._deaths else None)
            ]
            if self._wakeup.fd in ready:
                self._wakeup.clear()
            for child in [c for c in self._children.values() if c.pidfd in ready]:
                self._reap(child)
            if self._deaths:
                self._sweep()
            if self._agent.fileno() in ready and not self._take_packet():
                return

    def _take_packet(self) -> bool:
        try:
            data = self._agent.recv(MAX_PACKET_BYTES)
        except ConnectionError:
            return False
        if not data:
            return False
        match decode_for_zygote(data):
            case Spawn() as order:
                self._spawn(order)
            case KillWorker(slot, generation):
                self._kill(slot, generation)
            case Setup():
                pass
        return True

    def _send(self, packet: ZygoteToAgent) -> None:
        _send(self._agent, packet)

    # --- starting -------------------------------------------------------------------------------

    def _spawn(self, order: Spawn) -> None:
        slot, generation = order.slot, order.generation
        occupied = [*self._children.values(), *(death.child for death in self._deaths)]
        if any(child.slot == slot for child in occupied):
            self._send(SpawnFailed(slot, generation, f"slot {slot} still has a worker"))
            return
        settings = WorkerSettings(slot, generation, order.cpus, self._setup)
        try:
            with self._confined(order), self._pinned(order.cpus):
                child = self._start(settings)
        except OSError as error:
            limit = f"; {full_limit()}" if error.errno == errno.EAGAIN else ""
            message = f"no worker could be started: {error}{limit}"
            self._send(SpawnFailed(slot, generation, message))
            return
        self._children[child.pid] = child
        self._poll.register(child.pidfd, select.POLLIN)
        self._send(Spawned(slot, generation, child.pid))

    @contextmanager
    def _confined(self, order: Spawn) -> Iterator[None]:
        """Stay in the cpuset cgroup of the slot while the block runs, if cores are to be enforced."""
        name = self._setup.cpusets
        if name is None or order.cpus is None:
            yield
            return
        try:
            with cpuset.inside(f"{name}{order.slot}", order.cpus):
                yield
        finally:
            os.sched_setaffinity(0, self._cpus)

    @contextmanager
    def _pinned(self, cpus: tuple[int, ...] | None) -> Iterator[None]:
        """Set the CPU set while the block runs: a worker inherits it from its first instruction on."""
        if cpus is None:
            yield
            return
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            raise OSError(error.errno, f"CPU set {cpus}: {error.strerror}") from None
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._cpus)

    def _start(self, settings: WorkerSettings) -> _Child:
        evidence = Evidence.create(self._setup.run_folder, settings.slot)
        try:
            popen = None if self._forks else self._exec(settings, evidence)
            pid = self._fork(settings, evidence) if popen is None else popen.pid
            pidfd = pidfd_or_kill(pid)
        except OSError:
            evidence.close()
            raise
        slot, generation = settings.slot, settings.generation
        return _Child(slot, generation, pid, pidfd, evidence, popen)

    def _fork(self, settings: WorkerSettings, evidence: Evidence) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._agent.close()
                self._wakeup.close()
                for child in self._children.values():
                    os.close(child.pidfd)
                    child.evidence.close()
                run_worker(settings, parent, evidence)
            finally:
                os._exit(EXIT_BROKEN)  # never return into the code of the zygote
        return pid

    def _exec(self, settings: WorkerSettings, evidence: Evidence) -> subprocess.Popen[bytes]:
        """Start a new interpreter; it reads its settings from standard input."""
        with os.fdopen(os.memfd_create("settings"), "w+b") as file:
            file.write(msgspec.msgpack.encode((settings, os.getpid(), evidence)))
            file.seek(0)
            command = [sys.executable, "-P", "-m", "mitosis.worker", "worker"]
            return subprocess.Popen(command, stdin=file, pass_fds=evidence)

    # --- ending ---------------------------------------------------------------------------------

    def _kill(self, slot: int, generation: int) -> None:
        for child in self._children.values():
            if (child.slot, child.generation) == (slot, generation):
                kill_below(child.pid, root_too=True)

    def _reap(self, child: _Child) -> None:
        _, status, usage = os.wait4(child.pid, 0)
        self._poll.unregister(child.pidfd)
        keep = min(self._setup.output_tail_bytes, _MAX_STDERR_TAIL_BYTES)
        stderr_tail, running = child.evidence.stderr_tail(keep), child.evidence.running()
        os.close(child.pidfd)
        child.evidence.close()
        if child.popen is not None:
            child.popen.returncode = os.waitstatus_to_exitcode(status)
        del self._children[child.pid]
        self._deaths.append(_Death(child, status, usage, stderr_tail, running, time.monotonic()))

    def _sweep(self) -> None:
        """Kill and reap the leftovers of dead workers; send Exited when none is left.

        When several workers died at once, all leftovers are counted for each of them.
        """
        self._reap_leftovers()
        killed = kill_below(os.getpid(), spare=self._children.keys() | self._own)
        now, open_deaths = time.monotonic(), []
        for death in self._deaths:
            death.leftovers |= killed
            if killed and now - death.at < _UNKILLABLE_AFTER_SECONDS:
                open_deaths.append(death)
            else:
                self._send(_exited(death, -1 if killed else len(death.leftovers)))
        self._deaths = open_deaths

    def _reap_leftovers(self) -> None:
        """Reap the children that are not workers, and the workers by their own handler."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if (child := self._children.get(found.si_pid)) is not None:
                self._reap(child)
            else:
                os.waitpid(found.si_pid, 0)


def _exited(death: _Death, leftovers: int) -> Exited:
    child, usage = death.child, death.usage
    facts = ProcessUsage(usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024)
    return Exited(
        child.slot,
        child.generation,
        child.pid,
        death.wait_status,
        facts,
        leftovers,
        death.stderr_tail,
        death.running,
    )


def main() -> int:
    """Run a zygote on the socket at descriptor 3; return the exit status."""
    os.set_inheritable(AGENT_FD, False)
    agent = socket.socket(fileno=AGENT_FD)
    data = agent.recv(MAX_PACKET_BYTES)
    if not data:
        return 0
    setup = decode_for_zygote(data)
    if not isinstance(setup, Setup):
        raise TypeError(f"the first packet must be Setup, not {type(setup).__name__}")
    if os.getsid(0) != os.getpid():
        os.setsid()
    default_signals()
    _own_signals()
    become_subreaper()
    environment = session_environment(setup, os.environ)
    os.environ.clear()
    os.environ.update(environment)
    Path(setup.scratch_folder).mkdir(mode=0o700, exist_ok=True)
    try:
        return _serve(agent, setup)
    finally:
        kill_all_below(_GUARDIAN_SECONDS)
        remove_groups(pids_groups(setup))


def _own_signals() -> None:
    """Ignore Ctrl-C, which the agent handles; SIGTERM ends the zygote and all its descendants."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def _serve(agent: socket.socket, setup: Setup) -> int:
    try:
        with _agent_watched(agent):
            watch_changes()
            loaded = preload(setup.handler_modules, setup.python_path)
    except PreloadError as error:
        _send(agent, ImportFailed(error.module, str(error)[:2000], error.traceback))
        return EXIT_IMPORT_FAILED
    _own_signals()  # a module may have replaced them
    zygote = Zygote(agent, setup, forks=loaded.no_fork_reason is None)
    ready = Ready(
        os.getpid(), loaded.no_fork_reason is None, loaded.no_fork_reason, loaded.import_seconds
    )
    _send(agent, ready)
    zygote.serve()
    return 0


def _send(agent: socket.socket, packet: ZygoteToAgent) -> None:
    """Send a packet; if the agent has closed its end, the next read detects that."""
    with suppress(ConnectionError):
        agent.send(encode(packet))


@contextmanager
def _agent_watched(agent: socket.socket) -> Iterator[None]:
    """Check by a timer that the agent lives, while the imports keep the zygote from reading the socket."""

    def check(*_: object) -> None:
        try:
            if agent.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        sys.exit(0)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, _AGENT_CHECK_SECONDS, _AGENT_CHECK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
