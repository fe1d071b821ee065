"""What do runs of jobs cost? Latencies of a run, rates in a run and without one, memory of waiting tasks.

One embedded stack with two workers, everything durable, beside what the specification gives for the
baseline (S001-36 to S001-43). The last part needs PostgreSQL only: the CPU of tasks without a run, with and
without the trigger of runs, in pairs of the same database. With ``--write`` the table becomes a section of
``docs/benchmarks.md``.

    .venv/bin/python -m bench.runs [--write]
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import psutil

from bench.quick import ROOT, WORKERS, Report, Warm, cpu_seconds, table
from bench.scratch_database import scratch_database
from mitosis.cli.stack.whole_stack import WholeStack, whole_stack
from mitosis.client.client import Client
from mitosis.client.job_run import JobRun
from mitosis.contracts.lifecycle import RunState
from mitosis.contracts.task import TaskSubmission
from mitosis.settings import Settings
from mitosis.store.store import Store, StoreOptions
from mitosis.store.users.accounts import create_user
from mitosis.telemetry import configure_logging
from tests.support.campaigns import Host, World

SINGLE = 200
RATES: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("/bin/true", {"command": ["/bin/true"]}, 2_000),
    ("no-op handlers", {"handler": "math:sqrt", "arguments": [4.0]}, 10_000),
)
PAIRS = 3
WAITING = 100_000
CPU_PAIRS = 20
CPU_TASKS = 1_000
SECTION = "\n## Runs of jobs\n"


def one_step(group: str, step: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The definition of a job with one step in a standing task group."""
    return {
        "name": "bench",
        "groups": {"main": {"standing": group}},
        "steps": {"only": {**step, **fields}},
    }


async def whole(api: Client, definition: dict[str, Any]) -> tuple[JobRun, float]:
    """Carry out a run; the seconds from the call that starts it until its end is known here."""
    begun = time.perf_counter()
    run = await api.start_job(definition)
    await run.wait()
    assert run.state is RunState.SUCCESS, run.info
    return run, time.perf_counter() - begun


async def latencies(report: Report, stack: WholeStack, api: Client) -> None:
    await Warm.make(api, "runs")
    definition = one_step("runs", RATES[1][1])
    dispatched, complete, seen = [], [], []
    for number in range(-20, SINGLE):
        run, seconds = await whole(api, definition)
        (task,) = [one async for one in run.tasks("only")]
        if number < 0:
            continue
        assert task.started_at is not None
        assert run.info.ended_at is not None
        began = run.info.created_at
        dispatched.append((task.started_at - began) / timedelta(milliseconds=1))
        complete.append((run.info.ended_at - began) / timedelta(milliseconds=1))
        seen.append(1000 * seconds)
    name = "a run of one no-op handler on a warm host"
    for metric, times, goal in (
        ("created → its task runs", dispatched, 50.0),
        ("created → ended", complete, 100.0),
        ("call → end known to the client", seen, 100.0),
    ):
        p99 = statistics.quantiles(times, n=100)[98]
        report.row(name, metric, "p50", "ms", times)
        report.row(name, metric, "p99", "ms", [p99])
        report.ratio(f"{metric}: p99 / {goal:g} ms", p99 / goal, 1.0, "lower")


async def rates(report: Report, stack: WholeStack, api: Client) -> None:
    """The same tasks with and without a run, in turns."""
    warm = await Warm.make(api, "run-rates")
    for name, step, count in RATES:
        inside, outside = [], []
        for _ in range(PAIRS):
            outside.append(count / await warm.run([TaskSubmission(**step)] * count))
            _, seconds = await whole(api, one_step("run-rates", step, count=count))
            warm.skip(count)  # its results stand in the stream of the task group too
            inside.append(count / seconds)
        low = report.row(f"{count} x {name}", "without a run", "rate", "tasks/s", outside)
        high = report.row(f"{count} x {name}", "in a run", "rate", "tasks/s", inside)
        report.ratio(f"{name}: in a run / without", high / low, 0.9, "higher")
        report.ratio(f"{name}: tasks/s in a run / 155 (baseline)", high / 155, 10.0, "higher")


async def memory(report: Report, stack: WholeStack, api: Client) -> None:
    """What the whole stack needs more, PostgreSQL included, while the tasks of a run wait for a host."""
    definition = {
        "name": "waiting",
        "groups": {"main": {"tags": ["no-such-host"]}},
        "steps": {"only": {"count": WAITING, "command": ["/bin/true", "{{ task.index }}"]}},
    }
    before = pss()
    run = await api.start_job(definition)
    async for view in run.changes():
        if view.tasks_created == WAITING:
            break
    more = (pss() - before) / 2**20 * 500 / WAITING
    report.row(f"500 of {WAITING} waiting tasks", "mitosis", "memory (PSS)", "MiB", [more])
    report.ratio("memory of 500 waiting tasks / 10 MB", more * 2**20 / 1e7, 1.0, "lower")
    await run.cancel()
    await run.wait()


def pss() -> int:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(one.memory_full_info().pss for one in processes)


TRIGGER: tuple[LiteralString, LiteralString] = (
    "ALTER TABLE open_task DISABLE TRIGGER open_task_of_step_ended",
    "ALTER TABLE open_task ENABLE TRIGGER open_task_of_step_ended",
)


async def without_runs(report: Report) -> None:
    """CPU of submit, claim and report of tasks without a run, with the trigger of runs off and on."""
    async with (
        scratch_database() as url,
        Store.open(StoreOptions(database_url=url)) as store,
    ):
        w = World(store, (await create_user(store, "bench")).user_id)
        group = await w.group()
        await w.submit(group)
        host = await w.leased_host(group)
        await host.finish((await host.claim()).tasks)
        await campaign(w, host, group)
        spent: tuple[list[float], list[float]] = ([], [])
        for pair in range(CPU_PAIRS):
            for kind in (0, 1) if pair % 2 else (1, 0):
                await w.rows(TRIGGER[kind])
                before = cpu()
                await campaign(w, host, group)
                spent[kind].append(1e6 * (cpu() - before) / CPU_TASKS)
        name = "submit, claim and report without a run"
        for kind, text in enumerate(("without the trigger of runs", "with it")):
            report.row(name, text, "CPU per task", "µs", spent[kind])
        pairs = [after / before for before, after in zip(*spent, strict=True)]
        report.ratio(f"{name}: CPU", statistics.median(pairs), 1.05, "lower")


async def campaign(w: World, host: Host, group: UUID) -> None:
    await w.submit(group, CPU_TASKS)
    for _ in range(CPU_TASKS // 100):
        await host.finish((await host.claim(100)).tasks)
        host.held.clear()


def cpu() -> float:
    """CPU of this process and of PostgreSQL."""
    return cpu_seconds([psutil.Process(), *psutil.Process().children(recursive=True)])


async def measure() -> Report:
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        async with whole_stack(Settings(data_dir=Path(folder))) as stack, stack.client() as api:
            for part in (latencies, rates, memory):
                await part(report, stack, api)
                print(f"  {part.__name__} measured", file=sys.stderr)
    await without_runs(report)
    return report


def write(lines: list[str]) -> None:
    page = ROOT / "docs/benchmarks.md"
    today, load = datetime.now(UTC).date().isoformat(), os.getloadavg()[1]
    head = (
        f"\nMeasured on {today} with `make bench-runs`: {os.cpu_count()} cores, a load of {load:.1f} from the"
        f" bench and\nother programs, one embedded stack, {WORKERS} workers. The baseline of the"
        " specification (S001-36 to S001-43):\nup to 5 s from pending to dispatched, 700 ms from created"
        " to complete, 155 tasks/s, 10 MB for 500 tasks.\n"
    )
    kept = page.read_text().partition(SECTION)[0].rstrip("\n")
    page.write_text("\n".join([kept, SECTION.rstrip("\n"), head, *lines, ""]))


if __name__ == "__main__":
    configure_logging("WARNING")
    shown = table(asyncio.run(measure()))
    print("\n".join(shown))
    if "--write" in sys.argv:
        write(shown)
    sys.stdout.flush()
    os._exit(0)
