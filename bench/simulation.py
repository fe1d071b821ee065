"""What the scheduling policies come to in the simulator, into docs/: `make campaign-simulation`.

A fleet of 100 hosts for 4 days, the mean of two workloads; and the command `mitosis simulate` for 1,000 hosts
and 4 weeks, with the time that it took: under the rules alone, under all policies, and on a workload that has
the duration of each task. Or the policies on a recorded workload.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.comparison import PolicyName, policies
from mitosis.scheduling.simulation.plot import svg
from mitosis.scheduling.simulation.recording import read_workload, workload_lines
from mitosis.scheduling.simulation.result import Result, Wait, mean_of, result_of
from mitosis.scheduling.simulation.simulator import Simulator
from mitosis.scheduling.simulation.synthetic import Mix, mixed
from mitosis.scheduling.simulation.table import markdown
from mitosis.scheduling.simulation.workload import TasksRecord, Workload, durations

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT, PICTURE = ROOT / "docs" / "simulation.md", ROOT / "docs" / "simulation.svg"
SEEDS = (11, 12)
COMPARED = Mix(hosts=100, days=4, load=0.65)
LARGE = Mix(hosts=1_000, days=28, seed=1)
OTHERS = [name.value for name in PolicyName if name is not PolicyName.RULES]
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def compared(workloads: Sequence[Workload]) -> Mapping[str, Result]:
    return {
        name.value: mean_of([result_of(one, Simulator(one, policy).run()) for one in workloads])
        for name, policy in policies(Policy()).items()
    }


@dataclass(frozen=True, slots=True)
class Large:
    """The command for 1,000 hosts and 4 weeks."""

    results: Mapping[str, Result]
    seconds: float
    cpu_seconds: float

    @property
    def took(self) -> str:
        return f"**{self.seconds:.0f} s** ({self.cpu_seconds:.0f} s of CPU)"


def large(*options: str) -> Large:
    began, cpu = time.monotonic(), _cpu_of_children()
    command = [str(Path(sys.executable).with_name("mitosis")), "simulate", *options, "--json"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    took, cpu = time.monotonic() - began, _cpu_of_children() - cpu
    return Large({name: _result(of) for name, of in json.loads(ran.stdout).items()}, took, cpu)


def large_part(file: Path) -> tuple[Sequence[str], Mapping[str, Result]]:
    """Simulate the large workload: the rules alone, the other policies, and all durations from a file."""
    workload = mixed(LARGE)
    mix = ("--hosts", str(LARGE.hosts), "--days", f"{LARGE.days:g}", "--seed", str(LARGE.seed))
    others = (option for name in OTHERS for option in ("--policy", name))
    alone, rest = large(*mix, "--policy", "rules"), large(*mix, *others)
    every = {**alone.results, **rest.results}
    file.write_bytes(b"".join(workload_lines(_as_recorded(workload))))
    recorded = large("--workload", str(file))
    rules = alone.results["rules"]
    lines = [
        f"{LARGE.hosts:,} hosts for {LARGE.days:g} days at a load of {LARGE.load}:"
        f" {len(workload.groups):,} task groups, {sum(tasks.size for tasks in workload.tasks):,} tasks;"
        f" under `rules` {rules.offers:,.0f} offers by {rules.decisions:,.0f} decisions of"
        f" {_milliseconds(rules):.2f} ms, the longest {rules.longest_decide_ms:.0f} ms."
        f" `mitosis simulate {' '.join(mix)} --policy rules` took {alone.took} on a machine with"
        f" {os.cpu_count()} cores, the other policies {rest.took}:",
        "",
        markdown(every),
        "",
        "The same as `--record` writes it, with the duration of each task in a file, took"
        f" {recorded.took}:",
        "",
        markdown(recorded.results),
        "",
    ]
    return lines, every


def _milliseconds(result: Result) -> float:
    return result.decide_ms * result.rounds / result.decisions


def _as_recorded(workload: Workload) -> Workload:
    """Return the workload with the duration of each task, in milliseconds as `--record` has them."""
    tasks = [
        TasksRecord(
            group=one.group,
            at=one.at,
            seconds=[round(seconds, 3) for seconds in durations(one, number)],
        )
        for number, one in enumerate(workload.tasks)
    ]
    return replace(workload, tasks=tasks)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _result(figures: dict[str, object]) -> Result:
    waits = figures.pop("waits")
    assert isinstance(waits, list)
    return Result(waits=[Wait(**wait) for wait in waits], **figures)  # type: ignore[arg-type]


def write(lines: Iterable[str], results: Mapping[str, Result]) -> None:
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)
    PICTURE.write_text(svg(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/simulation.md and .svg")
    parser.add_argument("--small", action="store_true", help="without the 1,000 hosts")
    parser.add_argument("--workload", type=Path, help="compare on this file instead")
    options = parser.parse_args()
    if options.workload is not None:
        print(markdown(compared([read_workload(options.workload.read_bytes().splitlines())])))
        return
    seeds = ", ".join(map(str, SEEDS))
    workloads = [
        mixed(Mix(hosts=COMPARED.hosts, days=COMPARED.days, load=COMPARED.load, seed=seed))
        for seed in SEEDS
    ]
    results = compared(workloads)
    lines = [
        f"{COMPARED.hosts} hosts for {COMPARED.days:.0f} days at a load of {COMPARED.load}, mean of the seeds"
        f" {seeds}:",
        "",
        markdown(results),
        "",
    ]
    print("\n".join(lines), flush=True)
    if not options.small:
        with TemporaryDirectory() as folder:
            more, results = large_part(Path(folder) / "recorded.jsonl")
        print("\n".join(more))
        lines += more
    if options.write:
        write(lines, results)


if __name__ == "__main__":
    main()
