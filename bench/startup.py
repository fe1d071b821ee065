"""What does each part cost before it does anything: time and memory of its imports.

    .venv/bin/python bench/startup.py [--repeat 7]

Each row is a fresh interpreter that imports one module and stops; medians, the bare interpreter
included. Memory is the highest resident set size, which counts shared pages in full.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

PARTS = {
    "bare interpreter": "",
    "import mitosis": "mitosis",
    "worker process": "mitosis.worker.__main__",
    "command line": "mitosis.cli",
    "Python client": "mitosis.client.sync",
    "agent": "manager_agent.agent",
    "API": "api.app",
    "control worker": "workflows.worker",
}
ENTER = "import sys; sys.argv[0] = ''; from mitosis.app_root import enter_app; enter_app(); "


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one start: wall time, and the highest resident set size."""

    seconds: float
    max_rss_bytes: int


def start(module: str) -> Cost:
    """Run a fresh interpreter that imports ``module`` (nothing if empty) and wait for its end.

    Raises:
        RuntimeError: it did not end with status 0.
    """
    code = f"{ENTER}import {module}" if module else "pass"
    began = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise RuntimeError(f"importing {module} failed with wait status {status}")
    return Cost(seconds, usage.ru_maxrss * 1024)


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.seconds for cost in costs),
        int(statistics.median(cost.max_rss_bytes for cost in costs)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    repeat: int = parser.parse_args().repeat
    print(f"{'part':20}{'ms':>8}{'MB':>8}   medians of {repeat}")
    for part, module in PARTS.items():
        start(module)  # once unmeasured: byte code and page cache
        cost = median([start(module) for _ in range(repeat)])
        print(f"{part:20}{cost.seconds * 1000:8.0f}{cost.max_rss_bytes / 1e6:8.0f}")


if __name__ == "__main__":
    main()
