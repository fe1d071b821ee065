"""How fast are 2,000 commands through the whole stack, beside a plain loop that only starts them?

Both use two processes at a time on this machine, in one run. Ours: submitted over HTTP, kept in
PostgreSQL, run by two workers of one agent, exit status and usage of each recorded.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

from mitosis.cli.stack.whole_stack import WholeStack, whole_stack
from mitosis.client.client import Client
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.task import TaskSubmission
from mitosis.settings import load_settings
from mitosis.telemetry import configure_logging

COMMAND = "/bin/true"
WORKERS = 2


def spawn_loop(count: int) -> float:
    """Seconds for ``count`` commands by posix_spawn and wait, WORKERS at a time."""
    begun = time.perf_counter()
    started = running = 0
    while started < count or running:
        while started < count and running < WORKERS:
            os.posix_spawn(COMMAND, [COMMAND], os.environ)
            started, running = started + 1, running + 1
        os.wait()
        running -= 1
    return time.perf_counter() - begun


async def through_the_stack(stack: WholeStack, tasks: list[TaskSubmission], name: str) -> float:
    """Seconds from the submission of the tasks, to a warm host, until all are recorded."""
    async with stack.client() as api:
        plan = WorkerAllocationPlan(worker_count=WORKERS)
        group = await api.create_group(TaskGroupSpec(name=name, worker_allocation_plan=plan))
        warm = 20
        await api.submit(group.task_group_id, tasks[:1] * warm)
        await _completed(api, group.task_group_id, warm)
        begun = time.perf_counter()
        await api.submit(group.task_group_id, tasks)
        await _completed(api, group.task_group_id, warm + len(tasks))
        seconds = time.perf_counter() - begun
        await api.close_group(group.task_group_id)
        return seconds


async def _completed(api: Client, group_id: UUID, count: int) -> None:
    while (await api.group(group_id)).tasks_completed < count:  # noqa: ASYNC110 - a benchmark
        await asyncio.sleep(0.01)


async def main(count: int) -> None:
    configure_logging("WARNING")
    floor = spawn_loop(count)
    command, handler = (
        TaskSubmission(command=[COMMAND]),
        TaskSubmission(handler="math:sqrt", arguments=[4.0]),
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings({"data_dir": Path(folder)}).settings
        async with whole_stack(settings) as stack:
            ours = await through_the_stack(stack, [command] * count, "commands")
            handlers = await through_the_stack(stack, [handler] * count, "handlers")
    print(
        f"{count} tasks, {WORKERS} at a time, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'what':<34}{'tasks/s':>10}{'x loop':>9}")
    for what, seconds in (
        ("posix_spawn loop, nothing kept", floor),
        ("commands through the stack", ours),
        ("no-op handlers through the stack", handlers),
    ):
        print(f"{what:<34}{count / seconds:>10.0f}{floor / seconds:>9.2f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
