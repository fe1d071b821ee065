"""The embedded Temporal server: the bundled CLI's development server on a file, tuned for us.

Owns the folder ``temporal/`` of the data folder and the server's flags. The bootstrap of the control worker
sets the retention of the namespace, and creates the search attributes on external servers. Here the server
creates them at its start, because a workflow that starts before them is delayed for long.
"""

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Mapping
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from mitosis.contracts.temporal_names import SEARCH_ATTRIBUTES
from mitosis.contracts.variables import without_settings
from mitosis.embedded.data_folder import PRIVATE_UMASK, DataFolder, free_port
from mitosis.embedded.errors import PortInUse
from mitosis.embedded.supervisor import ProcessSpec, SupervisedProcess
from mitosis.embedded.temporal_program import find_temporal_binary

DYNAMIC_CONFIG: Mapping[str, str] = {
    # The one history shard polls 20 times a second by default: every step would wait up to 50 ms.
    "history.transferProcessorMaxPollRPS": "1000",
    "history.timerProcessorMaxPollRPS": "1000",
    "history.visibilityProcessorMaxPollRPS": "1000",
    "history.outboundProcessorMaxPollRPS": "1000",
    # An activity receives its cancellation in about 10 ms instead of with its next heartbeat.
    "system.enableCancelActivityWorkerCommand": "true",
    "frontend.WorkerCommandsEnabled": "true",
    # One partition makes priority and fairness exact.
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    "matching.enableFairness": "true",
    # A dead worker leaves the list in half a minute. Durations are JSON strings.
    "matching.workerRegistryEntryTTL": '"30s"',
    "matching.workerRegistryMinEvictAge": '"10s"',
    "matching.workerRegistryEvictionInterval": '"5s"',
    # The server has an HTTP API too, which asks for no login and checks no origin: a page in a browser could
    # send it signals. With a list of no hosts it answers 403 to everyone.
    "frontend.httpAllowedHosts": "[]",
    # Concurrent long polls per namespace: 1,200 by default, which is 240 hosts.
    "frontend.namespaceCount": "10000",
    # A workflow continues as new while the replay of its history takes a fraction of its task's timeout,
    # also on a busy machine. 4,096 events by default.
    "limit.historyCount.suggestContinueAsNew": "500",
    # A workflow task during which more messages arrive is failed, to begin again: 100 by default, which a
    # flood of 300 a second reaches every time. A run takes so many signals, then refuses them until the
    # next run begins: 10,000 by default, whose replay takes longer than the timeout of a workflow task.
    "history.maximumBufferedEventsBatch": "2000",
    "history.maximumSignalsPerExecution": "2000",
}
PORT_WAIT_SECONDS = 5.0
UI_PATH = "/temporal"
"""Where the API serves the Web UI (``api/temporal_ui.py``)."""


class EmbeddedTemporal:
    """One Temporal development server, up between :meth:`start` and :meth:`stop`.

    The caller holds the lock of the data folder.
    """

    def __init__(
        self,
        folder: DataFolder,
        namespace: str = "mitosis",
        port: int | None = None,
        ui_port: int | None = None,
    ) -> None:
        self._folder = folder
        self._namespace = namespace
        self._wanted = {"temporal": port, "temporal-ui": ui_port}
        self._ui_host = "127.0.0.1"
        self._ports: dict[str, int] = {}
        self.process: SupervisedProcess | None = None

    @property
    def address(self) -> str:
        """``host:port`` of the frontend; the same after every restart on this data folder."""
        return f"127.0.0.1:{self._ports['temporal']}"

    @property
    def ui_url(self) -> str:
        """The Web UI itself, which has no login; people reach it through the API."""
        return f"http://{self._ui_host}:{self._ports['temporal-ui']}"

    async def start(self) -> None:
        """Start the server and wait until the namespace answers.

        Raises:
            PortInUse, StartFailed, ProgramMissing: the message says what to do.
        """
        program = find_temporal_binary()
        self._ports["temporal"] = await self._port("temporal", "MITOSIS_TEMPORAL__PORT")
        self._ui_host = _random_loopback()
        self._ports["temporal-ui"] = self._wanted["temporal-ui"] or free_port(self._ui_host)
        spec = ProcessSpec(
            name="temporal",
            argv=[str(program), *self._arguments()],
            log=self._folder.log("temporal"),
            ready=self._answers,
            env=_environment() | {"HOME": str(self._folder.part("temporal"))},
            stop=((signal.SIGTERM, 5.0),),
            before_start=self._close_files,
            umask=PRIVATE_UMASK,
        )
        self.process = SupervisedProcess(spec)
        await self.process.start()

    async def stop(self) -> None:
        """Stop the server. Idempotent."""
        if self.process is not None:
            await self.process.stop()

    async def _port(self, name: str, setting: str) -> int:
        """Return :meth:`DataFolder.port`; wait a moment for a server that was just killed."""
        deadline = time.monotonic() + PORT_WAIT_SECONDS
        while True:
            try:
                return self._folder.port(name, self._wanted[name], setting)
            except PortInUse:
                if self._wanted[name] or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    def _arguments(self) -> list[str]:
        file = self._folder.part("temporal") / "temporal.db"
        ports = [
            "--port",
            str(self._ports["temporal"]),
            "--ui-port",
            str(self._ports["temporal-ui"]),
        ]
        store = ["--db-filename", str(file)]
        for pragma in ("journal_mode=WAL", "synchronous=1"):
            store += ["--sqlite-pragma", pragma]
        dynamic = [
            word
            for name, value in DYNAMIC_CONFIG.items()
            for word in ("--dynamic-config-value", f"{name}={value}")
        ]
        attributes = [
            word
            for name, value_type in SEARCH_ATTRIBUTES.items()
            for word in ("--search-attribute", f"{name}={value_type}")
        ]
        return [
            *("server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"),
            *("--ui-ip", self._ui_host, "--ui-public-path", UI_PATH, "--ui-disable-news-fetch"),
            *("-n", self._namespace, *ports, *store, *attributes, *dynamic),
        ]

    def _close_files(self) -> None:
        """Remove the read permission for others that an earlier version left on files."""
        for file in self._folder.part("temporal").glob("temporal.db*"):
            file.chmod(0o600)

    async def _answers(self) -> bool:
        try:
            client = await Client.connect(self.address, namespace=self._namespace)
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=self._namespace), timeout=timedelta(seconds=5)
            )
        except (RPCError, RuntimeError):
            return False
        return True


def _random_loopback() -> str:
    """Return an address of 127.0.0.0/8, which is this machine (RFC 1122, 3.2.1.3), that cannot be guessed.

    A page in a browser cannot try 16 million addresses with 20,000 ports each.
    """
    return f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"


def _environment() -> dict[str, str]:
    """Return our environment without the settings of Temporal clients and of Mitosis."""
    return without_settings(os.environ, "TEMPORAL_")
