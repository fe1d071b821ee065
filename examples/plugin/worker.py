"""A Temporal worker of another team with the Mitosis plugin. It runs until Ctrl-C.

    python examples/plugin/worker.py

TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE name Temporal; MITOSIS_API_URL and MITOSIS_TOKEN_FILE name the API.
The default for both is the `mitosis up` of this host.
"""

import asyncio
import os
import signal
import sys
from typing import NoReturn

from temporalio.client import Client
from temporalio.worker import Worker

from mitosis.app_root import enter_app

enter_app()  # makes the packages of Mitosis importable

from examples.plugin.release import (  # noqa: E402
    TASK_QUEUE,
    ReleaseByName,
    ReleaseWorkflow,
    start_builds,
)
from mitosis.client.finding import data_dir_of, read_connection  # noqa: E402
from mitosis.settings import load_settings  # noqa: E402
from workflows.plugin import MitosisPlugin  # noqa: E402


def temporal() -> tuple[str, str]:
    """Return address and namespace of Temporal."""
    if address := os.environ.get("TEMPORAL_ADDRESS"):
        return address, os.environ.get("TEMPORAL_NAMESPACE", "mitosis")
    stack = read_connection(data_dir_of(load_settings().settings))
    if stack is None:
        sys.exit("error: no Temporal: set TEMPORAL_ADDRESS, or start everything with: mitosis up")
    return stack.temporal_address, stack.temporal_namespace


def leave(status: int) -> NoReturn:
    """End the process at once: threads of Temporal can abort the teardown (sdk-python#300)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def connected() -> Client:
    """Return a client with the plugin; on failure, print the reason and end the process."""
    address, namespace = temporal()
    try:
        return await Client.connect(address, namespace=namespace, plugins=[MitosisPlugin()])
    except RuntimeError:
        sys.stderr.write(
            f"error: Temporal cannot be reached at {address}; "
            "is mitosis up running, and is TEMPORAL_ADDRESS the one it printed?\n"
        )
        leave(1)


async def main() -> None:
    client = await connected()
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[ReleaseWorkflow, ReleaseByName],
        activities=[start_builds],
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with worker:
        print(f"waiting for workflows on the task queue {TASK_QUEUE}", flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
    leave(0)
