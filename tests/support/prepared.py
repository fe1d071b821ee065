"""A pytest plugin: Python programs that begin with their imports done, at a tenth of the CPU time.

To import what `mitosis group show`, an agent or `mitosis up` needs takes most of its time. One server
imports it for all workers of xdist, and forks (:mod:`tests.support.prepared_server`); each program is still
a process of its own, with its own arguments, environment, folder and streams. What ``/proc`` says of its
arguments and environment is the server's: programs that are found by these are started for real.
"""

import asyncio
import json
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.checkout import ROOT
from tests.support.prepared_server import LENGTH, NUMBER, Request

CLI = (
    *("mitosis.cli.account", "mitosis.cli.config", "mitosis.cli.explain", "mitosis.cli.retry"),
    *("mitosis.cli.group.commands", "mitosis.cli.logs.command", "mitosis.cli.manager.commands"),
    *("mitosis.cli.run.command", "mitosis.cli.task.commands", "mitosis.cli.watch"),
    *("mitosis.cli.job.commands", "mitosis.cli.job.run_view", "mitosis.jobs.loading"),
    *("mitosis.cli.connection", "mitosis.cli.validation", "mitosis.cli.run.runner"),
    *("mitosis.client.client", "mitosis.client.sync", "rich.console", "rich.table"),
)
STACK = (
    *("mitosis.cli.stack.whole_stack", "mitosis.cli.stack.agent", "manager_agent.process"),
    *("mitosis.cli.worker.commands", "mitosis.worker_service.process"),
)
MITOSIS = (*CLI, *STACK, "mitosis.telemetry", "tests.support.control_plane")
"""What any program of ours imports."""

AT_IMPORT = ("PYTHON", "LC_", "LANG", "LD_", "FORCE_COLOR", "TERMINAL_WIDTH", "_TYPER", "MALLOC_")
"""Variables that an interpreter or a library reads when it begins, by their first letters."""

_SOCKET = "prepared_socket"
_exits = ExitStack()
_shared: list[Path] = []
"""The socket of the server for :data:`MITOSIS` that all workers of xdist use, in each of them."""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Say to a worker where the server is; xdist calls this in the process that starts the workers."""
    node.workerinput[_SOCKET] = str(_own_server(MITOSIS))


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, str] = getattr(config, "workerinput", {})
    _shared[:] = [Path(given[_SOCKET])] if _SOCKET in given else []


def _server(modules: tuple[str, ...]) -> Path:
    return _shared[0] if _shared and modules == MITOSIS else _own_server(modules)


@cache
def _own_server(modules: tuple[str, ...]) -> Path:
    """Return the socket of a server that imports ``modules`` when it is needed.

    It ends with this process, also if that is killed, and removes the folder of its socket.
    """
    path = Path(tempfile.mkdtemp(prefix="mt-", dir="/tmp")) / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        argv = ["-P", "-m", "tests.support.prepared_server", str(listener.fileno()), *modules]
        server = subprocess.Popen(
            [sys.executable, *argv],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=base_environment(),
            cwd=ROOT,
        )
    _exits.callback(server.wait)
    assert server.stdin is not None
    _exits.callback(server.stdin.close)
    return path


def base_environment() -> dict[str, str]:
    """Ours without settings of Mitosis and of Python."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("MITOSIS_", "PYTHON"))}


def pytest_unconfigure() -> None:
    _exits.close()
    _own_server.cache_clear()


def caller(
    module: str, env: Mapping[str, str], modules: tuple[str, ...] = MITOSIS
) -> Sequence[str]:
    """The beginning of a command line that runs ``module`` as ``python -P -m`` would.

    A program that begins with other settings of the interpreter is started for real.
    """
    if not _can_be_prepared(env):
        return (sys.executable, "-P", "-m", module)
    call = Path(__file__).with_name("prepared_call.py")
    return (sys.executable, "-I", "-S", str(call), str(_server(modules)), module)


def python(env: Mapping[str, str], modules: tuple[str, ...] = MITOSIS) -> Sequence[str]:
    """The beginning of a command line that runs a script, or what follows ``-c``, as ``python`` would."""
    others = {key: value for key, value in env.items() if key != "PYTHONPATH"}
    if not _can_be_prepared(others):
        return (sys.executable,)
    return caller("tests.support.prepared_script", others, modules)


def _can_be_prepared(env: Mapping[str, str]) -> bool:
    base = base_environment()
    other = {key for key in {*env, *base} if env.get(key) != base.get(key)}
    return not any(key.startswith(AT_IMPORT) for key in other)


def _begin(path: Path, request: Request, stdin: int, out: int, err: int) -> socket.socket:
    """Have a server begin a program; its pid and its status arrive on the link."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(path))
    body = marshal.dumps(cast(Any, request))
    socket.send_fds(link, [LENGTH.pack(len(body))], [stdin, out, err])
    link.sendall(body)
    return link


class PreparedPopen:
    """As ``subprocess.Popen``: a program of the prepared server that is waited for and killed.

    Without input; it is killed when the link to it ends, as with this process.
    """

    def __init__(
        self,
        module: str,
        words: Sequence[str],
        env: Mapping[str, str],
        out: int,
        *,
        err: int | None = None,
        cwd: Path | None = None,
    ) -> None:
        folder = str(cwd or Path.cwd())
        request = Request(module=module, words=[*words], env=dict(env), cwd=folder)
        with Path(os.devnull).open("rb") as nothing:
            self._link = _begin(
                _server(MITOSIS), request, nothing.fileno(), out, out if err is None else err
            )
        self.returncode: int | None = None
        self.pid = self._number()

    def poll(self) -> int | None:
        """Return its exit status; None: it still runs."""
        if self.returncode is None and select.select([self._link], [], [], 0)[0]:
            self.returncode = self._number()
            self._link.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status; negative: the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self.returncode is None and not select.select([self._link], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        self.poll()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            self._link.send(bytes([number]))

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _number(self) -> int:
        said = self._link.recv(NUMBER.size, socket.MSG_WAITALL)
        assert len(said) == NUMBER.size, "the prepared server has ended"
        number: int = NUMBER.unpack(said)[0]
        return number


class PreparedProcess:
    """A program of a prepared server, as a process that is waited for and killed."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._link = link
        self._ending = asyncio.ensure_future(self._end())

    @classmethod
    async def start(
        cls,
        module: str,
        given: Any,
        *,
        out: int,
        err: int,
        modules: tuple[str, ...] = MITOSIS,
    ) -> "PreparedProcess":
        """Run ``module``, which reads ``given`` as JSON from standard input."""
        request = Request(module=module, words=[], env=base_environment(), cwd=str(ROOT))
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(given).encode())
            stdin.seek(0)
            link = _begin(_server(modules), request, stdin.fileno(), out, err)
        link.setblocking(False)
        return cls(await _number(link), link)

    async def wait(self) -> int:
        """Return its exit status; negative: the signal that ended it."""
        return await asyncio.shield(self._ending)

    def send_signal(self, number: int) -> None:
        if not self._ending.done():
            self._link.send(bytes([number]))

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    async def _end(self) -> int:
        with self._link:
            self.returncode = await _number(self._link)
        return self.returncode


async def _number(link: socket.socket) -> int:
    loop, said = asyncio.get_running_loop(), b""
    while len(said) < NUMBER.size:
        more = await loop.sock_recv(link, NUMBER.size - len(said))
        assert more, "the prepared server has ended"
        said += more
    number: int = NUMBER.unpack(said)[0]
    return number
