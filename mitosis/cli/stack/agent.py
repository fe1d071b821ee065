"""`mitosis agent`: runs the manager agent of this host.

At its first start the agent registers with a user's token; it stores its own id and token in its state
folder.
"""

import asyncio
import socket
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mitosis.cli.stack.options import DataDirOption
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.ids import as_uuid

if TYPE_CHECKING:
    from manager_agent.registration import Credentials
    from mitosis.cli.connection import Target
    from mitosis.settings import Settings


def agent(
    data_dir: DataDirOption = None,
    take_over: Annotated[
        bool, typer.Option(help="Take over the id of a host that is still in contact.")
    ] = False,
) -> None:
    """Run the agent of this host until SIGTERM; it finds the API as every command does.

    At its first start it registers this host with the token of a user, or takes the one that `mitosis manager
    register` printed (MITOSIS_TOKEN or MITOSIS_TOKEN_FILE); it keeps its own token from then on.
    """
    from manager_agent.agent import AgentConfig
    from manager_agent.process import serve
    from mitosis.cli.connection import data_dir_of, find_api
    from mitosis.settings import load_settings
    from mitosis.telemetry import configure_logging

    settings = load_settings({"data_dir": data_dir}).settings
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    target = find_api(settings)
    state_dir = settings.agent.state_dir or data_dir_of(settings) / "agent"
    credentials = asyncio.run(_credentials(settings, target, state_dir))
    key = settings.temporal.api_key
    serve(
        AgentConfig(
            api_url=target.address,
            manager_id=credentials.manager_id,
            token=credentials.token,
            temporal_address=_temporal_address(settings),
            state_dir=state_dir,
            run_parent=settings.run_dir,
            ca_file=target.ca_file,
            temporal_tls=settings.temporal.tls,
            temporal_api_key=key.get_secret_value() if key else None,
            take_over=take_over,
            min_free_bytes=settings.agent.min_free_bytes,
            drain=timedelta(seconds=settings.agent.drain_seconds),
            stop_grace=timedelta(seconds=settings.agent.stop_grace_seconds),
            stopped_limit=timedelta(seconds=settings.agent.stopped_limit_seconds),
        )
    )


async def _credentials(settings: "Settings", target: "Target", state_dir: Path) -> "Credentials":
    from manager_agent.registration import ensure_registered
    from mitosis.client.client import Client
    from mitosis.contracts.http import RegisterManager

    spec = RegisterManager(
        name=settings.agent.name or host_name(),
        tags=frozenset(settings.agent.tags),
        labels=frozenset(settings.agent.labels),
        groups=settings.agent.groups,
    )
    async with Client(target.address, target.token, ca_file=target.ca_file) as client:
        return await ensure_registered(client.register_manager, state_dir, spec, target.token)


def host_name() -> str:
    """Return the name of this host; a UUID gets a prefix, since a name must not read as one."""
    name = socket.gethostname()
    return name if as_uuid(name) is None else f"host-{name}"


def _temporal_address(settings: "Settings") -> str:
    from mitosis.cli.connection import data_dir_of, read_connection

    stack = read_connection(data_dir_of(settings))
    address = settings.temporal.address or (stack.temporal_address if stack else None)
    if address is None:
        raise ConfigurationError("set MITOSIS_TEMPORAL_ADDRESS", field="temporal.address")
    return address
