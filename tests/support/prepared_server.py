"""A process that has imported what a program needs, and forks one program for each connection.

``python -P -m tests.support.prepared_server SOCKET MODULE…``: the number of a listening socket, and what to
import when the first program is asked for. A connection sends the length of a request with three
descriptors, then the request (:class:`Request`, by marshal). It gets the pid and, when the program has ended,
its status. Each byte that it sends is a signal for the program; when it ends first, the program is killed.
The server ends with its standard input.
"""

import atexit
import gc
import io
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TypedDict

LENGTH = struct.Struct("!I")
NUMBER = struct.Struct("!i")
DESCRIPTORS = 3


class Request(TypedDict):
    module: str
    """As after ``python -m``."""
    words: list[str]
    env: dict[str, str]
    cwd: str


class Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._programs: dict[int, socket.socket] = {}
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)

    def serve(self) -> Request | None:
        """Return in each new program, with its request; in the server at its end."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes)
        while True:
            ours = (0, self._woken, self._listener)
            watched: list[int | socket.socket] = [*ours, *self._programs.values()]
            ready, _, _ = select.select(watched, [], [])
            if 0 in ready:
                return None
            if self._woken in ready:
                self._reap()
            for pid in [pid for pid, connection in self._programs.items() if connection in ready]:
                self._pass_on(pid)
            if self._listener in ready and (request := self._accept()) is not None:
                return request

    def _accept(self) -> Request | None:
        connection, _ = self._listener.accept()
        asked = _received(connection)
        if asked is None:
            connection.close()
            return None
        request, descriptors = asked
        if (pid := os.fork()) == 0:
            self._forget(connection)
            _begin(request, descriptors)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        self._programs[pid] = connection
        _send(connection, pid)
        return None

    def _forget(self, connection: socket.socket) -> None:
        """Close in a program what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in (self._woken, self._wakes):
            os.close(end)
        for link in (self._listener, connection, *self._programs.values()):
            link.close()

    def _reap(self) -> None:
        os.read(self._woken, 4096)
        for pid, connection in list(self._programs.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._programs[pid]
                _send(connection, os.waitstatus_to_exitcode(status))
                connection.close()

    def _pass_on(self, pid: int) -> None:
        numbers = b""
        with suppress(ConnectionError):
            numbers = self._programs[pid].recv(64)
        for number in numbers or bytes([signal.SIGKILL]):
            os.kill(pid, number)
        if not numbers:  # who asked is gone
            os.waitpid(pid, 0)
            self._programs.pop(pid).close()


def _received(connection: socket.socket) -> tuple[Request, list[int]] | None:
    head, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, DESCRIPTORS)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    body = b""
    while len(body) < size and (more := connection.recv(size - len(body))):
        body += more
    return marshal.loads(body), descriptors  # noqa: S302 - of our own processes


def _send(connection: socket.socket, number: int) -> None:
    with suppress(ConnectionError):
        connection.sendall(NUMBER.pack(number))


def _begin(request: Request, descriptors: list[int]) -> None:
    """Make this process what ``execve`` would have made: streams, environment, folder."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stdout = _writer(1, "strict")
    sys.stderr = _writer(2, "backslashreplace")
    sys.argv = [request["module"], *request["words"]]


def _writer(descriptor: int, errors: str) -> io.TextIOWrapper:
    lines = descriptor == 2 or os.isatty(descriptor)
    binary = open(descriptor, "wb", closefd=False)  # noqa: SIM115 - open until the process ends
    return io.TextIOWrapper(binary, errors=errors, line_buffering=lines)


def main() -> None:
    number, *modules = sys.argv[1:]
    listener = socket.socket(fileno=int(number))
    folder = Path(listener.getsockname()).parent
    asked: list[int | socket.socket] = [0, listener]
    if 0 in select.select(asked, [], [])[0]:
        shutil.rmtree(folder)
        return
    for module in modules:
        import_module(module)
    gc.collect()
    gc.freeze()
    if (request := Server(listener).serve()) is not None:
        _run(request["module"])
    else:
        shutil.rmtree(folder)


def _run(module: str) -> None:
    """Run a program to its end.

    What an interpreter does then but for taking all modules apart, which copies each page of this process.
    An error, and output that cannot be written, are left to the interpreter.
    """
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        sys.exit(status)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
