"""A pytest plugin: one Temporal development server for all workers of xdist.

The process that started the workers runs it, from the first time that one of them asks. Each test has a
namespace of its own, so that no two control workers share a task queue.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.temporal import EmbeddedTemporal
from tests.support.servers import LoopThread

START_SECONDS = 90.0
_SOCKET = "temporal_socket"
_sharing = pytest.StashKey["SharedTemporal"]()


class SharedTemporal:
    """Answers each connection to its socket with the address of the server, and ends the connection."""

    def __init__(self) -> None:
        self._exits = ExitStack()
        folder = self._exits.enter_context(TemporaryDirectory(prefix="mt-", dir="/tmp"))
        self.socket = Path(folder) / "temporal"
        self._data, self._run = Path(folder) / "data", Path(folder) / "run"
        self._loop = self._exits.enter_context(LoopThread())
        self._starting: asyncio.Future[EmbeddedTemporal] | None = None
        self._door = self._loop.run(asyncio.start_unix_server(self._answer, self.socket))

    def close(self) -> None:
        """Stop the server if it was ever started."""
        self._loop.run(self._stop())
        self._exits.close()

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._starting = self._starting or asyncio.ensure_future(self._start())
        with closing(writer):
            writer.write((await self._starting).address.encode())

    async def _start(self) -> EmbeddedTemporal:
        folder = DataFolder(self._data, self._run)
        folder.lock()
        server = EmbeddedTemporal(folder)
        await server.start()
        return server

    async def _stop(self) -> None:
        self._door.close()
        if self._starting is not None:
            await (await self._starting).stop()


def pytest_configure() -> None:
    """Let every server that a test starts collect garbage less often, for a fifth of its CPU time."""
    os.environ.setdefault("GOGC", "400")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Say to a worker where to ask; xdist calls this in the process that starts the workers."""
    stash = node.config.stash
    if _sharing not in stash:
        stash[_sharing] = SharedTemporal()
    node.workerinput[_SOCKET] = str(stash[_sharing].socket)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (sharing := config.stash.get(_sharing, None)) is not None:
        sharing.close()


def _shared(config: pytest.Config) -> str | None:
    """Return the ``host:port`` of the server for all workers; None where this process is not one."""
    given: dict[str, str] = getattr(config, "workerinput", {})
    if _SOCKET not in given:
        return None
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(START_SECONDS)
        asking.connect(given[_SOCKET])
        return asking.makefile().read()


@pytest.fixture(scope="session")
def temporal_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The ``host:port`` of a Temporal development server with the namespace ``mitosis``.

    Other tests use it at the same time: control workers need a namespace of their own.
    """
    if address := _shared(request.config):
        yield address
        return
    loop = request.getfixturevalue("server_loop")
    server = EmbeddedTemporal(request.getfixturevalue("server_folder"))
    loop.run(server.start())
    yield server.address
    loop.run(server.stop())
