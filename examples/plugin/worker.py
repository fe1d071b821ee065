"""A Temporal worker of another team, with the Mitosis plugin. Runs until Ctrl-C.

    python examples/plugin/worker.py

Finds Temporal by TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE (`mitosis up` prints both), and the API as every
program does: a running `mitosis up`, or MITOSIS_API_URL with MITOSIS_TOKEN_FILE.
"""

import asyncio
import os
import signal
import sys

from temporalio.client import Client
from temporalio.worker import Worker

from mitosis.app_root import enter_app

enter_app()  # finds the packages that come with Mitosis, wherever it is installed

from examples.plugin.release import (  # noqa: E402
    TASK_QUEUE,
    ReleaseByName,
    ReleaseWorkflow,
    start_builds,
)
from workflows.plugin import MitosisPlugin  # noqa: E402


async def main() -> None:
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"),
        namespace=os.environ.get("TEMPORAL_NAMESPACE", "mitosis"),
        plugins=[MitosisPlugin()],
    )
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
    sys.stdout.flush()
    os._exit(0)  # Temporal's threads sometimes abort the interpreter's teardown (sdk-python#300)
