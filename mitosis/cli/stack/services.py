"""The commands that run servers: the whole stack (`up`), or its parts one by one.

`mitosis api | control | agent | migrate` are the parts for systemd, containers and Kubernetes. Each reads
the settings, configures logging and passes plain values on.
"""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mitosis.cli.exit import ExitStatus
from mitosis.cli.stack.options import DataDirOption
from mitosis.contracts.errors import ConfigurationError
from mitosis.garbage import settle

if TYPE_CHECKING:
    from mitosis.cli.connection import StackConnection
    from mitosis.settings import Settings

STOPS_WITHIN_SECONDS = 10.0
"""After this time the process of a part that should stop ends itself."""


def up(data_dir: DataDirOption = None) -> int:
    """Run everything on this host until Ctrl-C: PostgreSQL, Temporal, API, control worker, agent.

    The data folder is kept; the next start continues from it.
    """
    from mitosis.cli.connection import data_dir_of
    from mitosis.embedded.data_folder import DataFolder
    from mitosis.settings import load_settings
    from mitosis.telemetry import configure_logging

    settings = load_settings({"data_dir": data_dir}).settings
    folder = DataFolder(data_dir_of(settings), settings.run_dir)
    with folder.log("mitosis").open("a") as stream:
        configure_logging(settings.telemetry.log_level, settings.telemetry.log_format, stream)
        return asyncio.run(_up(settings))


async def _up(settings: "Settings") -> int:
    from mitosis.cli.stack.whole_stack import whole_stack

    async with whole_stack(settings) as stack:
        settle()
        for line in banner(stack.connection, stack.embedded.folder.path):
            typer.echo(line)
        await stack.embedded.until_stopped()
        with suppress(OSError):  # the terminal is gone, possibly the cause of the stop
            agent = settings.agent
            typer.echo(stopping(agent.drain_seconds, agent.stop_grace_seconds))
    return ExitStatus.OK


def stopping(drain_seconds: float, grace_seconds: float) -> str:
    """Return the text that says what the stop waits for, and how to skip the wait."""
    return (
        f"stopping: running tasks have {drain_seconds:g} s to end, then at most {grace_seconds:g} s from"
        " SIGTERM to SIGKILL (Ctrl-C again stops them now; they run again at the next start). The data"
        " folder is kept."
    )


def banner(connection: "StackConnection", data_dir: Path) -> list[str]:
    """Return the addresses and commands to print for a running stack."""
    return [
        "Mitosis is up.",
        f"  API              {connection.api_url}",
        "  Temporal Web UI  mitosis ui    (prints a link that opens once)",
        f"  data folder      {data_dir} (logs in logs/)",
        "",
        f"  export TEMPORAL_ADDRESS={connection.temporal_address}"
        f" TEMPORAL_NAMESPACE={connection.temporal_namespace}",
        "",
        "Every local user can reach the port of Temporal (SECURITY.md); the API requires a token.",
        "In another terminal: mitosis group create NAME    (Ctrl-C here stops everything)",
    ]


def migrate(data_dir: DataDirOption = None) -> int:
    """Bring the database of MITOSIS_DATABASE_URL to the schema of this version."""
    from mitosis.cli.stack.whole_stack import direct_url
    from mitosis.store.pg.migrate import head_revision
    from mitosis.store.pg.migrate import migrate as run_migrations

    settings = _start(data_dir)
    url = _needed_database(settings)
    run_migrations(direct_url(settings) or url)
    typer.echo(f"the database is at revision {head_revision()}")
    return ExitStatus.OK


def api(data_dir: DataDirOption = None) -> int:
    """Run only the HTTP API; the settings name PostgreSQL and Temporal.

    The data folder contains its signing key and a token of the admin, secrets/admin-token. It is valid for
    a day, and replaced each hour.
    """
    settings = _start(data_dir)
    return asyncio.run(_until_signal(_api(settings)))


async def _api(settings: "Settings") -> None:
    from api.service import running_api
    from mitosis.cli.connection import data_dir_of
    from mitosis.cli.stack.whole_stack import (
        api_options,
        keeping_admin_token,
        store_options,
        temporal_address,
    )
    from mitosis.embedded.data_folder import DataFolder
    from workflows.client import ControlClient

    control = await ControlClient.open(temporal_address(settings, _needed_temporal(settings)))
    folder = DataFolder(data_dir_of(settings), settings.run_dir)
    store = store_options(settings, _needed_database(settings))
    options = api_options(settings, store, folder)
    async with running_api(options, control) as running, keeping_admin_token(folder, running):
        settle()
        typer.echo(f"API at {running.url}")
        await asyncio.Event().wait()


def control(data_dir: DataDirOption = None) -> int:
    """Run only a control worker: workflows, database activities, outbox relay, reconcile."""
    settings = _start(data_dir)
    return asyncio.run(_until_signal(_control(settings)))


async def _control(settings: "Settings") -> None:
    from mitosis.cli.stack.whole_stack import control_service, store_options, temporal_address
    from mitosis.store.processes.live import recording_process
    from mitosis.store.store import Store

    where = temporal_address(settings, _needed_temporal(settings))
    options = store_options(settings, _needed_database(settings), listens=False)
    async with (
        Store.open(options) as store,
        recording_process(store, "control"),
        control_service(settings, where, store),
    ):
        settle()
        typer.echo(f"control worker of {where.address}, namespace {where.namespace}")
        await asyncio.Event().wait()


async def _until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Run ``work`` until it ends; SIGINT or SIGTERM cancels it, and it cleans up, in bounded time."""
    from mitosis.stop_deadline import StopDeadline

    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    deadline = StopDeadline(STOPS_WITHIN_SECONDS)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        deadline.arm()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    return ExitStatus.OK


def _start(data_dir: Path | None) -> "Settings":
    """Read the settings and configure logging: the first step of every service."""
    from mitosis.settings import load_settings
    from mitosis.telemetry import configure_logging

    settings = load_settings({"data_dir": data_dir}).settings
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    return settings


def _needed_database(settings: "Settings") -> str:
    if settings.database.url is None:
        raise ConfigurationError("set MITOSIS_DATABASE_URL", field="database.url")
    return settings.database.url.get_secret_value()


def _needed_temporal(settings: "Settings") -> str:
    if settings.temporal.address is None:
        raise ConfigurationError("set MITOSIS_TEMPORAL_ADDRESS", field="temporal.address")
    return settings.temporal.address
