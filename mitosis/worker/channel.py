"""The worker's end of the ZeroMQ protocol: one DEALER, polled by its file descriptor."""

from collections.abc import Iterator

import zmq

from mitosis.ipc.codec import decode_for_worker, encode
from mitosis.ipc.messages import ManagerToWorker, WorkerToManager

_LINGER_MS = 2_000
"""How long a worker that exits waits until its last messages are sent."""


class WorkerChannel:
    """One connection; ZeroMQ reconnects by itself when the agent's ROUTER comes back."""

    def __init__(self, endpoint: str, identity: bytes) -> None:
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, identity)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        for limit in (zmq.SNDHWM, zmq.RCVHWM):
            self._socket.setsockopt(limit, 0)  # the agent's credits are the only flow control
        self._socket.connect(endpoint)
        self.fd = int(self._socket.getsockopt(zmq.FD))
        """Edge-triggered: exhaust :meth:`receive` before polling it."""

    def send(self, message: WorkerToManager) -> None:
        self._socket.send(encode(message), zmq.NOBLOCK)

    def receive(self) -> Iterator[ManagerToWorker]:
        """Yield all messages that have arrived.

        Raises:
            ProtocolMismatch: the agent speaks another version.
        """
        while True:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield decode_for_worker(frame)

    def close(self) -> None:
        """Send the last messages, for at most two seconds, and close."""
        self._context.destroy()
