"""CPU time of the whole stack per task, by process, for three workloads; also of two trees in pairs.

``python -m bench.stack_cpu`` runs `mitosis up` of this tree once and prints one line of JSON. With
``--beside TREE`` it compares this tree with another one (its own ``.venv``), in turns within one run, and
prints medians. CPU time depends little on what else the machine does, so this does not need a quiet one.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

from bench.quick import NOTHING, TRUE, Warm
from mitosis.client.client import Client
from mitosis.contracts.task import TaskSubmission

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS: dict[str, tuple[TaskSubmission, int]] = {
    "handler": (NOTHING, 10_000),
    "command": (TRUE, 2_000),
}
SINGLE = 200
PAUSE_SECONDS = 0.7
"""What follows the last result (renewals, clearing the journal) belongs to the workload."""


def part_of(process: psutil.Process, up: int) -> str:
    """Name the part of the product that a process belongs to."""
    if process.pid == up:
        return "api and control"
    name, line = process.name(), " ".join(process.cmdline())
    if "postgres" in name:
        return "postgres"
    if "temporal" in line:
        return "temporal"
    if "mitosis.worker" in line:
        return "workers"
    return "agent" if "agent" in line else "rest"


def cpu_seconds(up: int) -> dict[str, float]:
    """Return CPU seconds by part; ended commands count for the worker that waited for them."""
    total: dict[str, float] = defaultdict(float)
    own = psutil.Process().cpu_times()
    total["client"] = own.user + own.system
    root = psutil.Process(up)
    for process in (root, *root.children(recursive=True)):
        try:
            part, times = part_of(process, up), process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total[part] += times.user + times.system
        if part == "workers":
            total["children"] += times.children_user + times.children_system
    return total


async def measured(
    up: int, name: str, count: int, work: "asyncio.Future[None]"
) -> dict[str, float]:
    before = cpu_seconds(up)
    await work
    await asyncio.sleep(PAUSE_SECONDS)
    after = cpu_seconds(up)
    figures = {part: 1e6 * (after[part] - before[part]) / count for part in after}
    figures["stack"] = sum(figures.values())
    return {f"{name}: {part}": round(value, 1) for part, value in figures.items()}


async def singles(warm: Warm) -> list[float]:
    return [1000 * await warm.run([NOTHING]) for _ in range(SINGLE)]


async def workloads(up: int, folder: str) -> dict[str, float]:
    found: dict[str, float] = {}
    async with Client(f"unix:{Path(folder) / 'run' / 'api.sock'}") as api:
        warm = await Warm.make(api, "cpu")
        for name, (task, count) in WORKLOADS.items():
            await warm.run([task] * (count // 10))
            seconds: list[float] = []

            async def run(task: TaskSubmission = task, count: int = count) -> None:
                seconds.append(await warm.run([task] * count))  # noqa: B023 - awaited at once

            found |= await measured(up, name, count, asyncio.ensure_future(run()))
            found[f"{name}: per second"] = round(count / seconds[0], 1)
        times: list[float] = []

        async def alone() -> None:
            times.extend(await singles(warm))

        found |= await measured(up, "single", SINGLE, asyncio.ensure_future(alone()))
        found["single: p50 ms"] = round(statistics.median(times), 2)
        found["single: p99 ms"] = round(statistics.quantiles(times, n=100)[98], 2)
    return found


def one_run() -> dict[str, float]:
    """Run one stack of this tree and measure it."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "MITOSIS_RUN_DIR": f"{folder}/run"}
        command = [sys.executable, "-m", "mitosis.cli", "up", "--data-dir", f"{folder}/data"]
        up = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL)
        try:
            while not (Path(folder) / "data" / "connection.json").exists():
                time.sleep(0.2)
                if up.poll() is not None:
                    raise SystemExit("the stack has not started")
            return asyncio.run(workloads(up.pid, folder))
        finally:
            up.terminate()
            up.wait(60)


def compare(other: Path, pairs: int) -> None:
    """Run this tree and the other one in turns; print medians of all figures."""
    trees = {"before": other, "after": ROOT}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for number in range(pairs):
        for name in sorted(trees, reverse=number % 2 == 0):
            tree = trees[name]
            command = [str(tree / ".venv/bin/python"), str(ROOT / "bench/stack_cpu.py")]
            done = subprocess.run(
                command,
                cwd=tree,
                env={**os.environ, "PYTHONPATH": str(tree)},
                check=True,
                stdout=-1,
            )
            runs[name].append(json.loads(done.stdout))
            print(f"  pair {number + 1}: {name} measured", file=sys.stderr, flush=True)
    print(f"{'':<28} {'before':>10} {'after':>10}")
    for key in runs["after"][0]:
        middle = [statistics.median(run.get(key, 0.0) for run in runs[name]) for name in trees]
        print(f"{key:<28} {middle[0]:>10,.4g} {middle[1]:>10,.4g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    if given.beside:
        compare(given.beside.resolve(), given.pairs)
    else:
        print(json.dumps(one_run()))
