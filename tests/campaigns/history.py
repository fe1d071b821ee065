"""Floods one task group with signals and updates, on the whole product: ``make campaign-history``.

Prints how many runs its workflow needed, the longest history, and how long the stop took; fails unless the
group completes and every history is bounded. ARGS="COUNT": how many signals, and how many updates.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client, RPCError, WorkflowUpdateFailedError
from temporalio.service import RPCStatusCode

from mitosis.cli.stack.whole_stack import WholeStack, whole_stack
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupResult
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.temporal_names import task_group_workflow_id
from mitosis.settings import AgentSettings, Settings

COUNT = 10_000
SIGNALS_AT_ONCE = 50
UPDATES_AT_ONCE = 8
"""The server refuses more than 10 of one workflow at once."""
AFTER_REFUSAL_SECONDS = 0.5
MOST_EVENTS = 10_000
"""Replayed within a workflow task's timeout; a run takes 2,000 signals and 2,000 updates."""
SETTLED_WITHIN = timedelta(minutes=3)
STOPPED_WITHIN_SECONDS = 10.0
SIGNALS = ("poke", "unknown", "close", "reopen")
UPDATES = ("close", "reopen")


async def flood(count: int, at_once: int, send: Callable[[int], Awaitable[None]]) -> Counter[str]:
    """Send so many messages, some at once; count what became of them."""
    gate, ends = asyncio.Semaphore(at_once), Counter[str]()

    async def one(number: int) -> None:
        async with gate:
            try:
                await send(number)
                ends["answered"] += 1
            except (RPCError, WorkflowUpdateFailedError) as error:
                status = error.status if isinstance(error, RPCError) else None
                ends[RPCStatusCode(status).name if status else "refused"] += 1
                await asyncio.sleep(AFTER_REFUSAL_SECONDS)

    await asyncio.gather(*(one(number) for number in range(count)))
    return ends


async def campaign(stack: WholeStack, gate: Path, count: int) -> None:
    """Flood a group whose task waits for ``gate``; then let it end."""
    where = stack.connection
    temporal = await Client.connect(where.temporal_address, namespace=where.temporal_namespace)
    async with stack.client() as client:
        group = (await client.create_group(TaskGroupSpec(name="flooded"))).task_group_id
        wait = f"until [ -e {gate} ]; do sleep 0.2; done"
        await client.submit(group, [TaskSubmission(command=["sh", "-c", wait])])
        handle = temporal.get_workflow_handle(task_group_workflow_id(group))
        began = time.monotonic()
        signals = await flood(
            count, SIGNALS_AT_ONCE, lambda i: handle.signal(SIGNALS[i % len(SIGNALS)])
        )
        print(f"{count} signals in {time.monotonic() - began:.0f} s: {dict(signals)}", flush=True)
        began = time.monotonic()

        async def update(number: int) -> None:
            await handle.execute_update(UPDATES[number % 2], rpc_timeout=timedelta(seconds=60))

        updates = await flood(count, UPDATES_AT_ONCE, update)
        print(f"{count} updates in {time.monotonic() - began:.0f} s: {dict(updates)}", flush=True)
        await asyncio.to_thread(gate.touch)
        await client.close_group(group)
        ended = await client.wait(group, timeout=SETTLED_WITHIN)
        assert ended.result is TaskGroupResult.SUCCESS, ended
    lengths = [
        run.history_length
        async for run in temporal.list_workflows(f"WorkflowId = '{handle.id}'")
        if run.history_length
    ]
    print(f"{len(lengths)} runs, the longest of {max(lengths)} events")
    assert max(lengths) < MOST_EVENTS


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="mitosis-campaign-") as folder:
        settings = Settings(data_dir=Path(folder) / "data", agent=AgentSettings(drain_seconds=0))
        async with whole_stack(settings) as stack:
            await campaign(stack, Path(folder) / "gate", count)
            began = time.monotonic()
        stopped = time.monotonic() - began
    print(f"stopped in {stopped:.1f} s")
    assert stopped < STOPPED_WITHIN_SECONDS


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
