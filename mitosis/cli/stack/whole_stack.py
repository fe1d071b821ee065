"""Runs the whole product in one data folder, for `mitosis up` and `mitosis demo`.

Order: PostgreSQL and Temporal (unless the settings name addresses), migrations, then API and control
worker in this process and one agent beside it. ``connection.json`` lists their addresses.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from api.service import ApiOptions, RunningApi, admin_token, running_api
from mitosis.cli.connection import StackConnection, remove_connection, write_connection
from mitosis.cli.stack.api_tls import local_access, served_certificate
from mitosis.client.client import Client
from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.bounded_files import MOST_SECRET_BYTES, read_bounded
from mitosis.contracts.errors import ConfigurationError, MitosisError
from mitosis.contracts.lease_settings import DEFAULT_TERMS
from mitosis.contracts.lifecycle import ManagerState
from mitosis.contracts.retention import RetentionTerms
from mitosis.embedded.data_folder import (
    DataFolder,
    ed25519_private_key,
    socket_path,
    write_private,
)
from mitosis.embedded.stack import EmbeddedStack
from mitosis.embedded.stop_signals import StopSignals
from mitosis.embedded.temporal import UI_PATH
from mitosis.settings import Settings
from mitosis.store.control.control_store import ControlStore
from mitosis.store.pg.migrate import migrate
from mitosis.store.processes.live import recording_process
from mitosis.store.store import QueueLimits, Store, StoreOptions
from mitosis.unix_socket import SCHEME
from workflows.client import ControlClient, TemporalAddress
from workflows.control import ControlService
from workflows.worker import ControlPorts, WorkerLimits

log = logging.getLogger(__name__)

Say = Callable[[str], None]
AGENT: Sequence[str] = (sys.executable, "-P", "-m", "mitosis.cli", "agent")
AGENT_ENDS_WITHIN_SECONDS = 2.0
"""After drain and grace the agent reports; what it cannot finish runs again."""
STACK_ENDS_WITHIN_SECONDS = 4.0
"""After the agent everything else has ended, or is killed."""
CONTROL_READY_SECONDS = 60.0
ADMIN_TOKEN_PAUSE_SECONDS = 3600.0
ONE_HOST_IDLE_THRESHOLD = 5.0
"""With one host, an idle group would block all others; its environment stays ready in any case."""
TOKEN_VARIABLES = (
    *("MITOSIS_TOKEN", "MITOSIS_TOKEN_FILE"),
    *("MITOSIS_API__TOKEN", "MITOSIS_API__TOKEN_FILE"),
)
"""The shell that starts the stack may have a token of another deployment; over the socket none is needed."""


@dataclass(frozen=True, slots=True)
class WholeStack:
    """A running stack and how to reach it."""

    connection: StackConnection
    embedded: EmbeddedStack
    address: str
    """Of the unix socket, where this user is the admin."""

    def client(self) -> Client:
        """Return a new client of the API, as the admin."""
        return Client(self.address)


@asynccontextmanager
async def whole_stack(
    settings: Settings, say: Say = lambda _: None, signals: StopSignals | None = None
) -> AsyncIterator[WholeStack]:
    """Run everything while the context is open; ``say`` is called for each step.

    ``signals``: as for :class:`EmbeddedStack`.

    Raises:
        DataFolderInUse, PortInUse, StartFailed, ConfigurationError: no process is left running.
    """
    stop_within = _agent_stops_within(settings) + STACK_ENDS_WITHIN_SECONDS
    async with EmbeddedStack(settings, signals, stop_within=stop_within) as stack:
        say("servers are up")
        await asyncio.to_thread(migrate, direct_url(settings) or stack.database_url)
        say("database is migrated")
        where = temporal_address(settings, stack.temporal_address)
        running = await _add_api_and_control(settings, stack, where)
        access = local_access(settings, stack.folder, running.url, running.certificate)
        await stack.add_service("token", keeping_admin_token(stack.folder, running))
        own_socket = owner_socket(stack.folder)
        connection = StackConnection(
            api_url=access.url,
            api_socket=own_socket,
            ca_file=access.ca_file,
            temporal_address=stack.temporal_address,
            temporal_namespace=where.namespace,
            ui_url=stack.ui_url if stack.temporal is None else f"{running.url}{UI_PATH}/",
            pid=os.getpid(),
        )
        address = f"{SCHEME}{own_socket}"
        await _add_agent(stack, connection, address)
        write_connection(stack.folder.path, connection)
        try:
            say("agent is started")
            yield WholeStack(connection, stack, address)
        finally:
            remove_connection(stack.folder.path)


@asynccontextmanager
async def keeping_admin_token(folder: DataFolder, running: RunningApi) -> AsyncIterator[None]:
    """Keep a token of the admin in a 0600 file of the data folder, for programs that use TCP.

    It is valid for a day, and a new one is written each hour: the token in the file of an API that has ended
    is soon worth nothing.
    """
    await _write_admin_token(folder, running)
    task = asyncio.create_task(_write_again(folder, running), name="admin token")
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def _write_again(folder: DataFolder, running: RunningApi) -> None:
    while True:
        await asyncio.sleep(ADMIN_TOKEN_PAUSE_SECONDS)
        try:
            await _write_admin_token(folder, running)
        except (MitosisError, OSError) as error:  # the one before is valid for many hours
            log.warning("admin_token.not_written", extra={"reason": str(error)})


async def _write_admin_token(folder: DataFolder, running: RunningApi) -> None:
    token = (await admin_token(running.app_state)).token
    write_private(folder.secret_path("admin-token"), token.encode())


def owner_socket(folder: DataFolder) -> Path:
    """Return where the API of a data folder is reached without a token.

    Raises:
        SocketPathTooLong: set MITOSIS_RUN_DIR.
    """
    return socket_path(folder.run, "api.sock")


def temporal_address(settings: Settings, address: str) -> TemporalAddress:
    """Return the address of the Temporal server with its namespace and credentials."""
    key = settings.temporal.api_key
    return TemporalAddress(
        address,
        settings.temporal.namespace,
        tls=settings.temporal.tls,
        api_key=key.get_secret_value() if key else None,
    )


async def _add_api_and_control(
    settings: Settings, stack: EmbeddedStack, where: TemporalAddress
) -> RunningApi:
    control = await ControlClient.open(where)
    store = store_options(settings, stack.database_url, ONE_HOST_IDLE_THRESHOLD)
    options = api_options(settings, store, stack.folder)
    options = replace(options, owner_socket=owner_socket(stack.folder))
    if stack.temporal is not None:
        options = replace(options, temporal_ui_url=stack.temporal.ui_url)
    running = await stack.add_service("api", running_api(options, control))
    recorded = recording_process(running.app_state.store, "control")
    await stack.add_service("control worker, its row", recorded)
    service = control_service(settings, where, running.app_state.store)
    await stack.add_service("control worker", service)
    await service.wait_ready(CONTROL_READY_SECONDS)
    return running


def control_service(settings: Settings, where: TemporalAddress, store: Store) -> ControlService:
    """Build the control worker over a store; nothing runs before it is entered."""
    control = ControlStore(store)
    ports = ControlPorts(control, control, control, control, control)
    limits = WorkerLimits(
        max_cached_workflows=settings.control.max_cached_workflows,
        max_concurrent_activities=settings.control.max_concurrent_activities,
    )
    return ControlService(where, ports, control, control, limits=limits)


def store_options(
    settings: Settings,
    database_url: str,
    idle_threshold: float = DEFAULT_TERMS.idle_threshold,
    *,
    listens: bool = True,
) -> StoreOptions:
    """Return the options of the store of one process.

    ``idle_threshold`` holds unless the settings name one.
    """
    return StoreOptions(
        database_url=database_url,
        direct_url=direct_url(settings),
        pool_size=settings.database.pool_size,
        listens=listens,
        queue_limits=QueueLimits(
            settings.api.max_open_tasks_per_group,
            settings.api.max_open_tasks_per_user,
            settings.api.max_open_tasks,
        ),
        host_lost_after=timedelta(seconds=settings.hosts.lost_after_seconds),
        suspect_after=timedelta(seconds=settings.hosts.suspect_after_seconds),
        quarantine_after=settings.hosts.quarantine_after,
        lease_terms=settings.scheduling.lease_terms(idle_threshold),
        moves_per_hour=settings.scheduling.moves_per_hour,
        starve_after=timedelta(seconds=settings.scheduling.starve_after_seconds),
        max_terminations=settings.tasks.max_terminations,
        retention=_retention(settings),
    )


def _retention(settings: Settings) -> RetentionTerms:
    groups = settings.retention.task_groups_seconds
    return RetentionTerms(
        bookkeeping=timedelta(seconds=settings.retention.bookkeeping_seconds),
        task_groups=None if groups is None else timedelta(seconds=groups),
    )


def api_options(settings: Settings, store: StoreOptions, folder: DataFolder) -> ApiOptions:
    """Return the options of the API; the signing key is from the settings or the data folder."""
    return ApiOptions(
        store=store,
        signing_key=_signing_key(settings, folder),
        temporal_namespace=settings.temporal.namespace,
        host=settings.api.host,
        port=folder.port("api", settings.api.port, "MITOSIS_API__PORT"),
        certificate=served_certificate(settings, folder),
        database_folder=folder.path if settings.database.url is None else None,
    )


def direct_url(settings: Settings) -> str | None:
    """Return the URL of the PostgreSQL server behind a pooler; None without a pooler."""
    url = settings.database.direct_url
    return url.get_secret_value() if url is not None else None


def _signing_key(settings: Settings, folder: DataFolder) -> bytes:
    given = settings.api.signing_key_file
    if given is None:
        return folder.secret("signing-key", ed25519_private_key)
    try:
        return read_bounded(given, MOST_SECRET_BYTES)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the signing key {given}: {error.strerror}", field="api.signing_key_file"
        ) from error


async def _add_agent(stack: EmbeddedStack, connection: StackConnection, address: str) -> None:
    """Start the agent of this host; it registers as the admin and stores its own token."""
    client = await stack.add_service("client", Client(address))

    async def in_contact() -> bool:
        return any([one.state is not ManagerState.OFFLINE async for one in client.managers()])

    await stack.add_process(
        "agent",
        AGENT,
        env={
            "MITOSIS_DATA_DIR": str(stack.folder.path),
            "MITOSIS_API_URL": address,
            "MITOSIS_TEMPORAL_ADDRESS": connection.temporal_address,
            "MITOSIS_RUN_DIR": str(stack.folder.run),
        },
        without=TOKEN_VARIABLES,
        ready=in_contact,
        stop_seconds=_agent_stops_within(stack.settings),
    )


def _agent_stops_within(settings: Settings) -> float:
    agent = settings.agent
    return agent.drain_seconds + agent.stop_grace_seconds + AGENT_ENDS_WITHIN_SECONDS
