"""What the scheduling policies come to in the simulator, into docs/: `make campaign-simulation`.

Two parts, each with all policies: a fleet of 100 hosts for 4 days, the mean of two workloads; and the command
`mitosis simulate` for 1,000 hosts and 4 weeks, with the time that it took. Or the policies on a recorded
workload.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.comparison import policies
from mitosis.scheduling.simulation.plot import svg
from mitosis.scheduling.simulation.recording import read_workload
from mitosis.scheduling.simulation.result import Result, Wait, mean_of, result_of
from mitosis.scheduling.simulation.simulator import Simulator
from mitosis.scheduling.simulation.synthetic import Mix, mixed
from mitosis.scheduling.simulation.table import markdown
from mitosis.scheduling.simulation.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT, PICTURE = ROOT / "docs" / "simulation.md", ROOT / "docs" / "simulation.svg"
SEEDS = (11, 12)
COMPARED = Mix(hosts=100, days=4, load=0.65)
LARGE = ("simulate", "--hosts", "1000", "--days", "28", "--seed", "1")
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def compared(workloads: Sequence[Workload]) -> Mapping[str, Result]:
    return {
        name.value: mean_of([result_of(one, Simulator(one, policy).run()) for one in workloads])
        for name, policy in policies(Policy()).items()
    }


@dataclass(frozen=True, slots=True)
class Large:
    """The command for 1,000 hosts and 4 weeks, all policies."""

    results: Mapping[str, Result]
    seconds: float
    cpu_seconds: float

    def lines(self) -> Sequence[str]:
        rules = self.results["rules"]
        return [
            f"`mitosis {' '.join(LARGE)}`, all policies, took **{self.seconds:.0f} s** on a machine with"
            f" {os.cpu_count()} cores that had other work as well ({self.cpu_seconds:.0f} s of CPU). Under"
            f" `rules`: {rules.rounds:,.0f} rounds of {rules.decide_ms:.2f} ms, the longest"
            f" {rules.longest_decide_ms:.0f} ms.",
            "",
            markdown(self.results),
            "",
        ]


def large() -> Large:
    began, cpu = time.monotonic(), _cpu_of_children()
    command = [str(Path(sys.executable).with_name("mitosis")), *LARGE, "--json"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    took, cpu = time.monotonic() - began, _cpu_of_children() - cpu
    return Large({name: _result(of) for name, of in json.loads(ran.stdout).items()}, took, cpu)


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
        made = large()
        print("\n".join(made.lines()))
        lines += made.lines()
        results = made.results
    if options.write:
        write(lines, results)


if __name__ == "__main__":
    main()
