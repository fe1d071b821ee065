"""The processes of one lease session: a zygote, and the workers it forks.

Starts and ends them; knows no tasks. The zygote is also the guardian: when its socket closes, for any
reason, it kills all its descendants and ends.
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mitosis.concurrency import wait_event, within
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.execution.leftovers import end_workers
from mitosis.worker import cpuset, evidence
from mitosis.worker.full_limits import full_limit
from mitosis.worker.process_tree import pidfd_or_kill
from mitosis.worker.zygote_protocol import (
    AGENT_FD,
    MAX_PACKET_BYTES,
    AgentToZygote,
    Exited,
    ImportFailed,
    KillWorker,
    Ready,
    Setup,
    Spawn,
    Spawned,
    SpawnFailed,
    ZygoteToAgent,
    decode_for_agent,
    encode,
)

READY_SECONDS = 120.0
"""Imports of handlers may be slow; a zygote that takes longer counts as hung."""
END_SECONDS = 15.0

log = logging.getLogger(__name__)


class PoolEvents(Protocol):
    """The callbacks of a pool."""

    def worker_spawned(self, slot: int, generation: int, pid: int) -> None: ...

    def worker_not_spawned(self, slot: int, generation: int, reason: str) -> None:
        """Handle a start that made no process, and why."""
        ...

    def worker_exited(
        self, slot: int, generation: int, reason: ExitReason, packet: Exited | None = None
    ) -> None:
        """Handle the death of a worker; ``packet``: what its zygote knows."""
        ...

    def zygote_ended(self, reason: ExitReason) -> None:
        """Handle the end of the zygote and with it of every worker."""
        ...


class ZygoteFailed(ConfigurationError):
    """The workers of a group cannot be started on this host."""

    code = "zygote_failed"


class HandlersNotImported(ZygoteFailed):
    """A handler module of the plan cannot be imported here."""

    code = "handlers_not_imported"


@dataclass(frozen=True, slots=True)
class ZygoteCommand:
    """The interpreter, setup and environment of the zygote of one session."""

    python: str
    setup: Setup
    environment: Mapping[str, str]


class Pool:
    """One zygote and its workers. Call ``start`` once, then spawn and kill, then ``close``."""

    def __init__(
        self,
        command: ZygoteCommand,
        cpus: list[frozenset[int] | None],
        events: PoolEvents,
        starting: AbstractContextManager[None] | None = None,
    ) -> None:
        """Start nothing before :meth:`start`.

        Args:
            command: the zygote.
            cpus: ``cpus[slot]`` are the cores of the worker in this slot; None: not pinned.
            events: what happens to the processes.
            starting: entered while the zygote starts and imports the handlers.
        """
        self._starting = starting or contextlib.nullcontext()
        self._command = command
        self._cpus = cpus
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._pid = 0
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self._ended = asyncio.Event()
        self._pidfd = -1
        self._last_steps: asyncio.Task[None] | None = None
        self.pids: dict[tuple[int, int], int] = {}

    async def start(self) -> Ready:
        """Start the zygote and wait until its handlers are imported.

        Raises:
            ZygoteFailed: the interpreter, a handler module or the zygote does not work here.
        """
        with self._starting:
            return await self._started()

    async def _started(self) -> Ready:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._socket = ours
        with theirs:
            self._pid, self._pidfd = _spawn_zygote(self._command, theirs.fileno())
        self._loop.add_reader(self._pidfd, self._on_zygote_end)
        self._loop.add_reader(ours, self._on_packets)
        self._send(self._command.setup)
        try:
            return await within(asyncio.shield(self._ready), READY_SECONDS)
        except TimeoutError:
            raise ZygoteFailed(f"the handlers were not imported in {READY_SECONDS:g} s") from None

    def spawn(self, slot: int, generation: int) -> None:
        """Start a worker; ``worker_spawned`` or ``worker_not_spawned`` follows."""
        cpus = self._cpus[slot]
        self._send(Spawn(slot, generation, None if cpus is None else tuple(sorted(cpus))))

    def kill(self, slot: int, generation: int) -> None:
        """Send SIGKILL to a worker and all its descendants; ``worker_exited`` follows."""
        self._send(KillWorker(slot, generation))

    def withdraw(self, slot: int) -> None:
        """Keep the worker from beginning what it holds, although it reads no messages.

        Raises:
            OSError: that cannot be written.
        """
        evidence.withdraw(Path(self._command.setup.run_folder), slot)

    def running(self, slot: int) -> AttemptKey | None:
        """Return what the worker has begun and not ended, also if its message was not read yet."""
        try:
            return evidence.running_attempt(Path(self._command.setup.run_folder), slot)
        except OSError:
            return None

    def begun(self, slot: int) -> frozenset[AttemptKey]:
        """Return what the worker has begun, also what has ended; the newest, as many as it may hold."""
        try:
            return frozenset(evidence.begun_by_process(Path(self._command.setup.run_folder), slot))
        except OSError:  # a task may have removed or cut the file
            return frozenset()

    @property
    def zygote(self) -> int:
        """Its process id; 0 before the start."""
        return self._pid

    def wake(self) -> None:
        """Continue a zygote that a signal has stopped: it kills, reaps and starts workers."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)

    async def close(self) -> None:
        """Kill the remaining workers and wait until the zygote has ended."""
        self._close_socket()
        if self._pid == 0:
            return
        if not await wait_event(self._ended, END_SECONDS):
            log.warning("zygote.not_ended", extra={"pid": self._pid})
            if self._pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            await self._ended.wait()
        if (cgroups := self._command.setup.cpusets) is not None:
            cpuset.remove(cgroups)

    def _send(self, packet: AgentToZygote) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(encode(packet))
        except BlockingIOError:
            # 200 KiB of packets of 20 bytes are queued: the zygote does not read.
            log.warning("zygote.not_reading", extra={"pid": self._pid})
            self._close_socket()
        except OSError:
            self._close_socket()  # the pidfd reports its end

    def _on_packets(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(MAX_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close_socket()
                return
            self._on_packet(decode_for_agent(data))

    def _on_packet(self, packet: ZygoteToAgent) -> None:
        match packet:
            case Ready():
                self._answer(packet)
            case ImportFailed():
                log.error(
                    "handlers.not_imported",
                    extra={"handler_module": packet.module, "traceback": packet.traceback},
                )
                self._answer(
                    HandlersNotImported(f"cannot import {packet.module}: {packet.message}")
                )
            case Spawned():
                self.pids[packet.slot, packet.generation] = packet.pid
                self._events.worker_spawned(packet.slot, packet.generation, packet.pid)
            case SpawnFailed():
                log.error(
                    "worker.not_spawned", extra={"slot": packet.slot, "reason": packet.message}
                )
                self._events.worker_not_spawned(packet.slot, packet.generation, packet.message)
            case Exited():
                self.pids.pop((packet.slot, packet.generation), None)
                reason = ExitReason.from_wait_status(packet.wait_status)
                self._events.worker_exited(packet.slot, packet.generation, reason, packet)

    def _answer(self, answer: Ready | ZygoteFailed) -> None:
        if self._ready.done():
            return
        if isinstance(answer, Ready):
            self._ready.set_result(answer)
        else:
            self._ready.set_exception(answer)

    def _on_zygote_end(self) -> None:
        self._on_packets()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        _, status = os.waitpid(self._pid, 0)
        self._close_socket()
        reason = ExitReason.from_wait_status(status)
        self._answer(ZygoteFailed(f"the zygote ended before it was ready: {reason}"))
        log.debug("zygote.ended", extra={"pid": self._pid, "reason": str(reason)})
        self._last_steps = self._loop.create_task(self._end(reason))

    async def _end(self, reason: ExitReason) -> None:
        """Say that everything has ended; a zygote that was killed has not seen to that itself."""
        if reason.kind is ExitKind.SIGNAL:
            await end_workers(self._command.setup.manager_id)
        self._ended.set()
        self._events.zygote_ended(reason)

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None


def _spawn_zygote(command: ZygoteCommand, descriptor: int) -> tuple[int, int]:
    """Start the process with ``descriptor`` as its AGENT_FD, in a new session; return pid and pidfd."""
    argv = [command.python, "-P", "-m", "mitosis.worker", "zygote"]
    try:
        pid = os.posix_spawn(
            command.python,
            argv,
            dict(command.environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, 2, 1),
                (os.POSIX_SPAWN_DUP2, descriptor, AGENT_FD),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
        )
        return pid, pidfd_or_kill(pid)
    except OSError as error:
        limit = f"; {full_limit()}" if error.errno == errno.EAGAIN else ""
        raise ZygoteFailed(f"cannot start {command.python}: {error.strerror}{limit}") from None
