"""The worker's end of the ZeroMQ protocol: one DEALER, polled by its file descriptor."""

import os
import select
import stat
from collections.abc import Iterator

import zmq

from mitosis.ipc.codec import decode_for_worker, encode
from mitosis.ipc.messages import Hello, ManagerToWorker, WorkerToManager

_LINGER_MS = 2_000
"""How long a worker that exits waits until its last messages are sent."""
_NOBLOCK, _READABLE = int(zmq.NOBLOCK), int(zmq.POLLIN)
"""As plain numbers: the operators of an enum take as long as the call."""


class WorkerChannel:
    """One connection; ZeroMQ reconnects by itself when the agent's ROUTER comes back.

    A task may close its descriptors, as a daemon does with all that it did not open. libzmq then aborts
    the process at the next call, so :attr:`intact` comes first where a task has run.
    """

    def __init__(self, endpoint: str, identity: bytes) -> None:
        self._endpoint = endpoint
        self._lost: list[object] = []
        self._connect(identity)

    def _connect(self, identity: bytes) -> None:
        self._before = _open_descriptors()
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, identity)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        for limit in (zmq.SNDHWM, zmq.RCVHWM):
            self._socket.setsockopt(limit, 0)  # the agent's credits are the only flow control
        self.fd = int(self._socket.getsockopt(zmq.FD))
        """Edge-triggered: exhaust :meth:`receive` before polling it."""
        self._file = _file(self.fd)
        self._own = select.poll()
        self._watched = _open_descriptors() - self._before
        for fd in self._watched:
            self._own.register(fd, 0)
        self._connection_known = False
        self._socket.connect(self._endpoint)

    @property
    def intact(self) -> bool:
        """Whether no task has closed a descriptor of this channel, or put another file into its place."""
        try:
            closed = any(events & select.POLLNVAL for _, events in self._own.poll(0))
            return not closed and _file(self.fd) == self._file
        except OSError:  # the limit of open files is below their number: poll(2), EINVAL
            return all(map(_is_open, self._watched))

    def open_again(self, identity: bytes, hello: Hello) -> None:
        """Take a new connection for the last messages of this process, and begin with ``hello``.

        Nothing of the lost one is touched: its thread sleeps for ever, its destructor would abort. Its
        numbers are not used again: a thread that was awake would wait for the events of another epoll.
        """
        self._lost += [self._context, self._socket, self._occupy()]
        self._connect(identity)
        self.send(hello)

    def _occupy(self) -> select.epoll:
        """Put an epoll without events at the numbers that a task has closed; return it, to be kept."""
        nothing = select.epoll()
        for fd in self._watched:
            if not _is_open(fd):
                os.dup2(nothing.fileno(), fd)
        return nothing

    def send(self, message: WorkerToManager) -> None:
        self._socket.send(encode(message), _NOBLOCK)

    def offer(self, message: WorkerToManager) -> None:
        """Send what may be lost, unless a task has closed this channel."""
        if self.intact:
            self.send(message)

    def receive(self) -> Iterator[ManagerToWorker]:
        """Yield all messages that have arrived.

        Raises:
            ProtocolMismatch: the agent speaks another version.
        """
        # Asked first: an exception for "no message" costs more than a message.
        while int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE:
            frame = self._socket.recv(_NOBLOCK)
            if not self._connection_known:
                self._know_connection()
            yield decode_for_worker(frame)

    def _know_connection(self) -> None:
        """Watch the connection too, which libzmq opens in its thread; it is there after the first message."""
        self._connection_known = True
        for fd in _open_descriptors() - self._before:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                self._watched.add(fd)
                self._own.register(fd, 0)

    def close(self) -> None:
        """Send the last messages, for at most two seconds, and close."""
        self._context.destroy()


def _file(fd: int) -> tuple[int, int]:
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino


def _open_descriptors() -> set[int]:
    try:
        listed = map(int, os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are wanted
    except (
        OSError
    ):  # a task has lowered the limit of files, or made its process opaque: nothing is watched
        return set()
    return set(filter(_is_open, listed))  # that of the listing is closed


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
