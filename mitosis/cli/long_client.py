"""The client of commands that follow something to its end: an outage of the API does not end them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mitosis.cli.outages import GIVE_UP_AFTER, Outages, announced_outages

if TYPE_CHECKING:
    from mitosis.client.client import Client


@asynccontextmanager
async def client_for_long(
    address: str, token: str | None, ca_file: Path | None, outages: Outages
) -> AsyncIterator["Client"]:
    """Open a client that repeats its calls while the API is away, and reports each outage."""
    from mitosis.client.client import Client

    with announced_outages(outages):
        async with Client(address, token, give_up_after=GIVE_UP_AFTER, ca_file=ca_file) as client:
            yield client
