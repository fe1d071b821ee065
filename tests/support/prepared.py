"""A pytest plugin: Python programs that begin with their imports done, at a tenth of the CPU time.

To import what `mitosis group show` or an agent needs takes most of its time. A server for each kind of
program imports it once per test process and forks (:mod:`tests.support.prepared_server`); each program is
still a process of its own, with its own arguments, environment, folder and streams. What ``/proc`` says of
its arguments and environment is the server's: programs that are found by these are started for real.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.checkout import ROOT
from tests.support.prepared_server import LENGTH, NUMBER, Request

CLI = (
    *("mitosis.cli.account", "mitosis.cli.config", "mitosis.cli.explain", "mitosis.cli.retry"),
    *("mitosis.cli.group.commands", "mitosis.cli.logs.command", "mitosis.cli.manager.commands"),
    *("mitosis.cli.run.command", "mitosis.cli.task.commands", "mitosis.cli.watch"),
    *("mitosis.cli.connection", "mitosis.cli.validation", "mitosis.cli.run.runner"),
    *("mitosis.client.client", "mitosis.client.sync", "rich.console", "rich.table"),
)
AGENT = ("manager_agent.process", "mitosis.telemetry")
CONTROL = ("tests.support.control_plane",)

AT_IMPORT = ("PYTHON", "LC_", "LANG", "LD_", "FORCE_COLOR", "TERMINAL_WIDTH", "_TYPER", "MALLOC_")
"""Variables that an interpreter or a library reads when it begins, by their first letters."""

_exits = ExitStack()


@cache
def _server(modules: tuple[str, ...]) -> Path:
    """Return the socket of a server that has imported ``modules``; it ends with this process."""
    folder = _exits.enter_context(tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp"))
    path = Path(folder) / "s"
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
    _server.cache_clear()


def caller(modules: tuple[str, ...], module: str, env: Mapping[str, str]) -> Sequence[str]:
    """The beginning of a command line that runs ``module`` as ``python -P -m`` would.

    A program that begins with other settings of the interpreter is started for real.
    """
    base = base_environment()
    other = {key for key in {*env, *base} if env.get(key) != base.get(key)}
    if any(key.startswith(AT_IMPORT) for key in other):
        return (sys.executable, "-P", "-m", module)
    call = Path(__file__).with_name("prepared_call.py")
    return (sys.executable, "-I", "-S", str(call), str(_server(modules)), module)


class PreparedProcess:
    """A program of a prepared server, as a process that is waited for and killed."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._link = link
        self._ending = asyncio.ensure_future(self._end())

    @classmethod
    async def start(
        cls, modules: tuple[str, ...], module: str, given: Any, *, out: int, err: int
    ) -> "PreparedProcess":
        """Run ``module``, which reads ``given`` as JSON from standard input."""
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(_server(modules)))
        request = Request(module=module, words=[], env=base_environment(), cwd=str(ROOT))
        body = json.dumps(request).encode()
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(given).encode())
            stdin.seek(0)
            socket.send_fds(link, [LENGTH.pack(len(body))], [stdin.fileno(), out, err])
        link.sendall(body)
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
