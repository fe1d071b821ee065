"""The stack as one process per part: `python -P -m tests.chaos.parts DATA_DIR [no-agent] [PART=ARGV…]`.

`mitosis up` runs API, control worker and relay in its own process. Here, as on several machines, `mitosis
api`, `mitosis control` (which carries the relay) and `mitosis agent` are children of their own, so that each
can be killed alone; PostgreSQL and Temporal are the embedded ones. Stands for the supervisor of a machine:
starts again what dies. ``PART=ARGV``: the command line of `api` or `control`, as JSON.
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from mitosis.cli.connection import StackConnection, remove_connection, write_connection
from mitosis.client.client import Client
from mitosis.contracts.lifecycle import ManagerState
from mitosis.embedded.stack import EmbeddedStack
from mitosis.settings import load_settings
from mitosis.store.pg.migrate import migrate
from tests.support.admin import admin_token_file

SECONDS_TO_STOP = 60.0
IDLE_THRESHOLD_SECONDS = 5
"""One host, as in `mitosis up`."""


async def main(data_dir: Path, *words: str) -> None:
    settings = load_settings({"data_dir": data_dir}).settings
    given = dict(word.split("=", 1) for word in words if "=" in word)
    programs = {part: json.loads(argv) for part, argv in given.items()}
    async with EmbeddedStack(settings) as stack:
        await asyncio.to_thread(migrate, stack.database_url)
        connection = _connection(stack)
        token_file = admin_token_file(data_dir)
        token_file.unlink(missing_ok=True)  # the API writes it when it is up
        servers = {
            "MITOSIS_DATA_DIR": str(data_dir),
            "MITOSIS_DATABASE_URL": stack.database_url,
            "MITOSIS_TEMPORAL_ADDRESS": stack.temporal_address,
        }

        async def token_written() -> bool:
            return token_file.exists()

        await stack.add_process(
            "api", programs.get("api", _mitosis("api")), env=servers, ready=token_written
        )
        idle = {"MITOSIS_SCHEDULING__IDLE_THRESHOLD_SECONDS": str(IDLE_THRESHOLD_SECONDS)}
        control = programs.get("control", _mitosis("control"))
        await stack.add_process("control", control, env=servers | idle)
        if "no-agent" not in words:
            await _add_agent(stack, connection, data_dir)
        write_connection(data_dir, connection)
        print("Mitosis is up, in parts.", flush=True)
        try:
            await stack.until_stopped()
        finally:
            remove_connection(data_dir)


def _mitosis(command: str) -> list[str]:
    return [sys.executable, "-P", "-m", "mitosis.cli", command]


def _connection(stack: EmbeddedStack) -> StackConnection:
    port = stack.folder.port("api", None, "MITOSIS_API__PORT")
    return StackConnection(
        api_url=f"http://127.0.0.1:{port}",
        temporal_address=stack.temporal_address,
        temporal_namespace=stack.settings.temporal.namespace,
        pid=os.getpid(),
    )


async def _add_agent(stack: EmbeddedStack, connection: StackConnection, data_dir: Path) -> None:
    token_file = admin_token_file(data_dir)
    client = await stack.add_service("client", Client(connection.api_url, token_file.read_text()))

    async def in_contact() -> bool:
        return any([one.state is not ManagerState.OFFLINE async for one in client.managers()])

    await stack.add_process(
        "agent",
        _mitosis("agent"),
        env={
            "MITOSIS_DATA_DIR": str(data_dir),
            "MITOSIS_API_URL": connection.api_url,
            "MITOSIS_API__TOKEN_FILE": str(token_file),
            "MITOSIS_TEMPORAL_ADDRESS": connection.temporal_address,
            "MITOSIS_RUN_DIR": str(stack.folder.run),
        },
        ready=in_contact,
        stop_seconds=SECONDS_TO_STOP,
    )


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
