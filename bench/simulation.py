"""What the scheduling policies come to in the simulator, into docs/: `make campaign-simulation`.

Two parts: a fleet of 100 hosts for 4 days, each policy on the same workloads; and one of 1,000 hosts for
4 weeks under the rules of the product, to show how long that takes. Or the policies on a recorded workload.
"""

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.comparison import PolicyName, policies
from mitosis.scheduling.simulation.plot import svg
from mitosis.scheduling.simulation.recording import read_workload
from mitosis.scheduling.simulation.result import Result, mean_of, result_of
from mitosis.scheduling.simulation.simulator import Simulator
from mitosis.scheduling.simulation.synthetic import Mix, mixed
from mitosis.scheduling.simulation.table import markdown
from mitosis.scheduling.simulation.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT, PICTURE = ROOT / "docs" / "simulation.md", ROOT / "docs" / "simulation.svg"
SEEDS = (11, 12)
COMPARED = Mix(hosts=100, days=4, load=0.65)
LARGE = Mix(hosts=1_000, days=28, load=0.5, size_hours=40)
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


@dataclass(frozen=True, slots=True)
class Large:
    result: Result
    task_groups: int
    tasks: int
    cpu_seconds: float

    def line(self) -> str:
        result = self.result
        return (
            f"{LARGE.hosts:,} hosts for {LARGE.days:.0f} days at a load of {LARGE.load} under `rules`, task"
            f" groups of {LARGE.size_hours:.0f} hours of work (median): {self.task_groups:,} task groups and"
            f" {self.tasks:,} tasks, {result.rounds:,.0f} rounds of {result.decide_ms:.2f} ms (the longest"
            f" {result.longest_decide_ms:.0f} ms), **{self.cpu_seconds:.0f} s of CPU in all**."
        )


def simulated(workload: Workload, policy: Policy, pace: float = 2.0) -> Result:
    simulator = Simulator(workload, policy, pace_seconds=pace, sample_seconds=30 * pace)
    return result_of(workload, simulator.run())


def compared(workloads: Sequence[Workload]) -> Mapping[str, Result]:
    return {
        name.value: mean_of([simulated(workload, policy) for workload in workloads])
        for name, policy in policies(Policy()).items()
    }


def large() -> Large:
    workload = mixed(LARGE)
    began = time.process_time()
    result = simulated(workload, policies(Policy())[PolicyName.RULES], pace=10.0)
    took = time.process_time() - began
    return Large(result, len(workload.groups), sum(t.size for t in workload.tasks), took)


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
        lines.append(large().line())
        print(lines[-1])
    if options.write:
        write(lines, results)


if __name__ == "__main__":
    main()
