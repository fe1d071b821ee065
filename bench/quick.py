"""The speed of the whole product in under four minutes: each figure beside its floor, in one run.

One embedded stack, two workers, everything durable. Prints one table and, with ``--write``, keeps it in
``docs/benchmarks.json`` and ``docs/benchmarks.md``. Floors: a plain posix_spawn loop, a
ProcessPoolExecutor (nothing kept), one round trip of the API, and the targets of the design.
"""

import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import psutil

from examples.stdlib_campaign.campaign import Campaign, modules, stage
from mitosis.cli.stack.whole_stack import WholeStack, whole_stack
from mitosis.client.client import Client
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.task import TaskSubmission
from mitosis.settings import Settings
from mitosis.telemetry import configure_logging

WORKERS = 2
RUNS = 3
COMMANDS = 2_000
HANDLERS = 10_000
SINGLE = 200
SUBMITTED = 100_000
IDLE_SECONDS = 15.0
ROOT = Path(__file__).resolve().parent.parent
TRUE = TaskSubmission(command=["/bin/true"])
NOTHING = TaskSubmission(handler="math:sqrt", arguments=[4.0])


@dataclass(frozen=True, slots=True)
class Row:
    workload: str
    system: str
    metric: str
    unit: str
    median: float
    min: float
    max: float
    runs: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """``better`` says in which direction: higher or lower."""

    name: str
    value: float
    target: float
    better: str


@dataclass(slots=True)
class Report:
    rows: list[Row] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

    def row(
        self, workload: str, system: str, metric: str, unit: str, values: Sequence[float]
    ) -> float:
        median = statistics.median(values)
        self.rows.append(
            Row(workload, system, metric, unit, median, min(values), max(values), len(values))
        )
        return median

    def ratio(self, name: str, value: float, target: float, better: str) -> None:
        self.ratios.append(Ratio(name, value, target, better))


def spawn_loop(commands: Sequence[Sequence[str]]) -> float:
    """Seconds for these commands by posix_spawn and wait, WORKERS at a time; nothing is kept."""
    begun = time.perf_counter()
    waiting, running = iter(commands), 0
    for argv in waiting:
        os.posix_spawnp(argv[0], list(argv), os.environ)
        running += 1
        if running == WORKERS:
            os.wait()
            running -= 1
    while running:
        os.wait()
        running -= 1
    return time.perf_counter() - begun


def nothing(_: int) -> None:
    """A handler that does nothing."""


def pool_of_processes() -> float:
    """Seconds for HANDLERS calls, one future each, in a warm ProcessPoolExecutor."""
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(nothing, range(100)))
        begun = time.perf_counter()
        for future in [pool.submit(nothing, number) for number in range(HANDLERS)]:
            future.result()
        return time.perf_counter() - begun


class Warm:
    """One open group on a warm host, whose results are followed."""

    def __init__(self, api: Client, group: UUID) -> None:
        self._api = api
        self.group = group
        self._seen = 0

    @classmethod
    async def make(cls, api: Client, name: str) -> "Warm":
        plan = WorkerAllocationPlan(worker_count=WORKERS)
        spec = TaskGroupSpec(name=name, worker_allocation_plan=plan)
        warm = cls(api, (await api.create_group(spec)).task_group_id)
        await warm.run([TRUE, NOTHING] * 10)
        return warm

    def skip(self, results: int) -> None:
        """Follow from so many results later."""
        self._seen += results

    async def run(self, tasks: Sequence[TaskSubmission]) -> float:
        """Seconds from the submission until the last result is here."""
        begun = time.perf_counter()
        submitting = asyncio.create_task(self._api.submit(self.group, tasks))
        left = len(tasks)
        async for _ in self._api.results(self.group, after=self._seen):
            self._seen += 1
            left -= 1
            if left == 0:
                break
        await submitting
        return time.perf_counter() - begun


async def rates(report: Report, stack: WholeStack, api: Client) -> None:
    warm = await Warm.make(api, "rates")
    for name, task, count, floor_name, floor, target in (
        (
            f"{COMMANDS} x /bin/true",
            TRUE,
            COMMANDS,
            "posix_spawn loop",
            lambda: spawn_loop([["/bin/true"]] * COMMANDS),
            0.6,
        ),
        (
            f"{HANDLERS} no-op handlers",
            NOTHING,
            HANDLERS,
            "ProcessPoolExecutor",
            pool_of_processes,
            0.6,
        ),
    ):
        ours, floors = [], []
        for _ in range(RUNS):
            floors.append(count / await asyncio.to_thread(floor))
            ours.append(count / await warm.run([task] * count))
        low = report.row(name, floor_name, "rate", "tasks/s", floors)
        high = report.row(name, "mitosis", "rate", "tasks/s", ours)
        report.ratio(f"{name}: mitosis / {floor_name}", high / low, target, "higher")


async def latency(report: Report, stack: WholeStack, api: Client) -> None:
    warm = await Warm.make(api, "latency")
    hops, times = [], []
    for _ in range(SINGLE):
        hops.append(1000 * await timed(api.me))
        times.append(1000 * await warm.run([NOTHING]))
    report.row("one round trip of the API", "mitosis", "p50", "ms", hops)
    name = "submit one task, idle and warm, until its result is here"
    report.row(name, "mitosis", "p50", "ms", times)
    report.ratio("latency p50 / 4 ms", statistics.median(times) / 4, 1.0, "lower")
    p99 = statistics.quantiles(times, n=100)[98]
    report.row(name, "mitosis", "p99", "ms", [p99])
    report.ratio("latency p99 / 10 ms", p99 / 10, 1.0, "lower")


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def submits(report: Report, stack: WholeStack, api: Client) -> None:
    """Submit to a group that no host serves, so that nothing else runs."""
    spec = TaskGroupSpec(name="submits", tags=frozenset({"no-such-host"}))
    group = (await api.create_group(spec)).task_group_id
    seconds = [await timed(lambda: api.submit(group, [TRUE] * SUBMITTED)) for _ in range(RUNS)]
    report.row(f"submit {SUBMITTED} tasks", "mitosis", "time", "s", seconds)
    report.ratio("submit / 0.8 s", statistics.median(seconds) / 0.8, 1.0, "lower")
    await api.cancel(group)
    await api.wait(group)


async def idle(report: Report, stack: WholeStack, api: Client) -> None:
    """The whole stack with one agent and its idle group: memory as PSS, CPU of one core."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    before = cpu_seconds(processes)
    await asyncio.sleep(IDLE_SECONDS)
    used = 100 * (cpu_seconds(processes) - before) / IDLE_SECONDS
    pss = sum(process.memory_full_info().pss for process in processes) / 2**20
    report.row("idle stack", "mitosis", "CPU of one core", "%", [used])
    report.row("idle stack", "mitosis", "memory (PSS)", "MiB", [pss])
    report.ratio("idle CPU / 1 %", used, 1.0, "lower")
    report.ratio("idle memory / 600 MiB", pss / 600, 1.0, "lower")


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def campaign(report: Report, stack: WholeStack, api: Client) -> None:
    """The demo's commands, beside a plain loop over the same ones."""
    warm = await Warm.make(api, "campaign")
    commands = []
    with tempfile.TemporaryDirectory() as folder:
        work = Campaign(Path(folder))
        stage(work.scratch, work.results)
        commands = [work.command(name) for name, _ in modules()]
        floor = len(commands) / await asyncio.to_thread(spawn_loop, commands)
        ours = len(commands) / await warm.run([TaskSubmission(command=c) for c in commands])
    name = f"{len(commands)} commands of the demo"
    report.row(name, "posix_spawn loop", "rate", "tasks/s", [floor])
    report.row(name, "mitosis", "rate", "tasks/s", [ours])
    report.ratio(f"{name}: mitosis / posix_spawn loop", ours / floor, 0.6, "higher")


async def measure() -> Report:
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        async with whole_stack(Settings(data_dir=Path(folder))) as stack, stack.client() as api:
            for part in (rates, campaign, latency, submits, idle):
                await part(report, stack, api)
                print(f"  {part.__name__} measured", file=sys.stderr)
    return report


def table(report: Report) -> list[str]:
    lines = [f"| {'workload':<58} | {'system':<20} | {'metric':<16} | median (min to max) |"]
    lines.append(f"|{'-' * 60}|{'-' * 22}|{'-' * 18}|{'-' * 21}|")
    for row in report.rows:
        figure = f"{row.median:,.4g} {row.unit}"
        if row.runs > 1:
            figure += f" ({row.min:,.4g} to {row.max:,.4g})"
        lines.append(f"| {row.workload:<58} | {row.system:<20} | {row.metric:<16} | {figure} |")
    lines += ["", f"| {'ratio':<58} | value | target |", f"|{'-' * 60}|-------|--------|"]
    for ratio in report.ratios:
        met = (
            ratio.value >= ratio.target if ratio.better == "higher" else ratio.value <= ratio.target
        )
        sign = "≥" if ratio.better == "higher" else "≤"
        lines.append(
            f"| {ratio.name:<58} | {ratio.value:.2f} | {sign} {ratio.target:g}{'' if met else ' (missed)'} |"
        )
    return lines


def write(report: Report, lines: Sequence[str]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    head = {"machine": machine, "date": datetime.now(UTC).date().isoformat(), "commit": commit}
    document = {
        **head,
        "rows": [asdict(row) for row in report.rows],
        "ratios": [asdict(ratio) for ratio in report.ratios],
    }
    (ROOT / "docs/benchmarks.json").write_text(json.dumps(document, indent=1) + "\n")
    text = "\n".join(
        [
            "# Benchmarks",
            "",
            f"Measured on {head['date']} at {commit}: {machine}. Made by `make bench-quick`; every figure",
            "stands beside its floor, measured in the same run. One embedded stack, two workers, every",
            "result durable in PostgreSQL.",
            "",
            *lines,
            "",
        ]
    )
    page = ROOT / "docs/benchmarks.md"
    _, begin, others = page.read_text().partition("\n## ")
    page.write_text(text + begin + others)


if __name__ == "__main__":
    configure_logging("WARNING")
    measured = asyncio.run(measure())
    shown = table(measured)
    print("\n".join(shown))
    if "--write" in sys.argv:
        write(measured, shown)
    sys.stdout.flush()
    os._exit(0)
