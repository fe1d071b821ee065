"""The ROUTER socket of an agent: sends and receives frames, checks peers, awaits acknowledgements.

It polls the file descriptor of a plain socket: an asyncio wrapper costs 15 to 40 µs per message. The
descriptor is edge-triggered (zmq_getsockopt(3), ZMQ_FD), so the socket is drained whenever it fires and
after every send. It knows no tasks.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

import zmq

from mitosis.concurrency import within
from mitosis.ipc.codec import ProtocolMismatch, decode_for_manager, encode
from mitosis.ipc.endpoints import last_words_identity, worker_identity
from mitosis.ipc.messages import (
    Acknowledge,
    CancelTask,
    Configure,
    Hello,
    ManagerToWorker,
    Pause,
    Resume,
    Shutdown,
    WorkerToManager,
)

ACKNOWLEDGE_SECONDS = 5.0
BACKLOG = 1024
_NOBLOCK, _READABLE = int(zmq.NOBLOCK), int(zmq.POLLIN)
_FIRST = int(zmq.NOBLOCK | zmq.SNDMORE)
"""As plain numbers: the operators of an enum take as long as the call."""

Control = CancelTask | Shutdown | Pause | Resume | Configure
Deliver = Callable[[int, int, WorkerToManager], None]
"""Called with slot, generation and message."""

log = logging.getLogger(__name__)


class _Worker(NamedTuple):
    """An expected worker process, and the callback of its session."""

    slot: int
    generation: int
    pid: int
    deliver: Deliver


class Router:
    """Bound before any worker starts; passes each message to the session that expects its worker."""

    def __init__(self, endpoint: str) -> None:
        """Bind.

        Raises:
            zmq.ZMQError: the path cannot be bound.
        """
        self.endpoint = endpoint
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.LINGER, 0),
            (zmq.BACKLOG, BACKLOG),
        ):
            self._socket.setsockopt(option, value)
        self._socket.bind(endpoint)
        self._expected: dict[bytes, _Worker] = {}
        self._checked: dict[bytes, _Worker] = {}
        self._early: dict[bytes, tuple[int, Hello]] = {}
        self._message_ids = count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._draining = False
        self._drain_due = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.FD, self.drain)

    def expect(self, slot: int, generation: int, pid: int, deliver: Deliver) -> None:
        """Accept the process with this pid as this worker, and pass its messages to ``deliver``."""
        name = worker_identity(slot, generation)
        self._expected[name] = _Worker(slot, generation, pid, deliver)
        if early := self._early.pop(name, None):
            self._admit(name, *early)

    def forget(self, slot: int, generation: int) -> None:
        """Accept no more messages of a dead worker; its identity is not used again."""
        name = worker_identity(slot, generation)
        self._expected.pop(name, None)
        self._checked.pop(name, None)
        self._checked.pop(last_words_identity(slot, generation), None)
        self._early.pop(name, None)

    def send(self, slot: int, generation: int, message: ManagerToWorker) -> bool:
        """Queue a message; return False if the worker is not connected (its exit event follows)."""
        frame = encode(message)  # first: an error between two frames would spoil the next message
        try:
            self._socket.send(worker_identity(slot, generation), _FIRST)
            self._socket.send(frame, _NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        if not self._draining and not self._drain_due:
            self._drain_due = True
            self._loop.call_soon(self.drain)
        return True

    async def control(
        self,
        slot: int,
        generation: int,
        make: Callable[[int], Control],
        seconds: float = ACKNOWLEDGE_SECONDS,
    ) -> bool:
        """Send the message that ``make(message_id)`` returns and wait for its acknowledgement.

        Returns:
            False if the worker is not connected or does not answer within ``seconds``.
        """
        message_id = next(self._message_ids)
        waiting = self._loop.create_future()
        self._waiting[message_id] = waiting
        try:
            if not self.send(slot, generation, make(message_id)):
                return False
            await within(waiting, seconds)
        except TimeoutError:
            log.warning(
                "control.not_acknowledged",
                extra={"slot": slot, "generation": generation, "seconds": seconds},
            )
            return False
        else:
            return True
        finally:
            self._waiting.pop(message_id, None)

    def drain(self) -> None:
        """Read and deliver all messages that have arrived."""
        self._drain_due = False
        if self._socket.closed or self._draining:
            return
        self._draining = True
        try:
            self._read_all()
        finally:
            self._draining = False

    def _read_all(self) -> None:
        while not self._socket.closed:
            if not int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE:
                return
            name = frame = self._socket.recv(_NOBLOCK, copy=False)
            frames = []
            while frame.more:
                frame = self._socket.recv(copy=False)
                frames.append(frame.bytes)
            self._receive(name, frames)

    def close(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.FD)
            self._socket.close(0)
            self._context.term()
            Path(self.endpoint.removeprefix("ipc://")).unlink(missing_ok=True)

    def _receive(self, frame: zmq.Frame, frames: list[bytes]) -> None:
        name = frame.bytes
        try:
            message = decode_for_manager(frames[0] if len(frames) == 1 else b"")
        except ProtocolMismatch as error:
            log.warning("frame.refused", extra={"peer": repr(name), "reason": error.message})
            return
        worker = self._checked.get(name)
        if worker is None:
            if isinstance(message, Hello):
                self._meet(name, str(frame.get("Peer-Address")), message)
            return
        if isinstance(message, Acknowledge):
            waiting = self._waiting.get(message.message_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
            return
        worker.deliver(worker.slot, worker.generation, message)

    def _meet(self, name: bytes, address: str, hello: Hello) -> None:
        pid = peer_pid(address, os.getuid())
        known = self._checked.get(worker_identity(hello.slot, hello.generation))
        if name == last_words_identity(hello.slot, hello.generation):
            if known is not None and pid == known.pid:
                self._checked[name] = known
                return
            pid = None
        if pid is None or name != worker_identity(hello.slot, hello.generation):
            log.warning("peer.refused", extra={"peer": repr(name), "address": address})
        elif name in self._expected:
            self._admit(name, pid, hello)
        else:
            self._early[name] = (pid, hello)  # the zygote has not announced it yet

    def _admit(self, name: bytes, pid: int, hello: Hello) -> None:
        worker = self._expected[name]
        if pid != worker.pid:
            log.warning(
                "peer.refused", extra={"peer": repr(name), "pid": pid, "expected": worker.pid}
            )
            return
        self._checked[name] = worker
        worker.deliver(worker.slot, worker.generation, hello)


def peer_pid(address: str, uid: int) -> int | None:
    """Return the pid of a peer of this user; None for another user.

    Args:
        address: ``host:uid:gid:pid``, as libzmq gives it for ipc peers (from SO_PEERCRED).
        uid: of this user.
    """
    parts = address.split(":")
    if len(parts) != 4 or not all(part.isdigit() for part in parts[1:]) or int(parts[1]) != uid:
        return None
    return int(parts[3])
