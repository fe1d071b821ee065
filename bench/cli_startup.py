"""How long the command line takes to start: median wall time of fresh processes, beside bare Python."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 9
PYTHON = sys.executable
MITOSIS = str(Path(PYTHON).parent / "mitosis")

COMMANDS = {
    "python -c pass": [PYTHON, "-c", "pass"],
    "python -c 'import typer'": [PYTHON, "-c", "import typer"],
    "mitosis --version": [MITOSIS, "--version"],
    "mitosis --help": [MITOSIS, "--help"],
    "mitosis group create --help": [MITOSIS, "group", "create", "--help"],
    "mitosis config show": [MITOSIS, "config", "show"],
}


def seconds(argv: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(argv, capture_output=True, check=True)
    return time.perf_counter() - start


def main() -> None:
    print(f"{'command':<30} {'median ms':>10} {'best ms':>10}")
    for name, argv in COMMANDS.items():
        seconds(argv)
        times = [seconds(argv) for _ in range(ROUNDS)]
        print(f"{name:<30} {statistics.median(times) * 1e3:>10.0f} {min(times) * 1e3:>10.0f}")


if __name__ == "__main__":
    main()
