"""The client of commands that follow a run: an outage of the API does not end them, as the run goes on."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from mitosis.cli.context import Cli
from mitosis.cli.outages import GIVE_UP_AFTER, Outages, announce_outages

if TYPE_CHECKING:
    from mitosis.client.client import Client
    from mitosis.contracts.runs import RunView


@asynccontextmanager
async def client_for_long(cli: Cli, outages: Outages) -> AsyncIterator["Client"]:
    """Open a client that repeats its calls while the API is away, and reports each outage."""
    from mitosis.client.client import Client

    announce_outages(outages)
    to = cli.target
    async with Client(
        to.address, to.token, give_up_after=GIVE_UP_AFTER, ca_file=to.ca_file
    ) as client:
        yield client


async def ended_run(cli: Cli, run_id: UUID, say: Callable[[str], None]) -> "RunView":
    """Wait until a run has ended and return it; ``say`` prints what holds up the wait."""
    async with client_for_long(cli, Outages(say)) as client:
        run = await client.run(run_id)
        return await run.wait()
