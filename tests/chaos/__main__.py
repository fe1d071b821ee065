"""`python -m tests.chaos [--seed N] [--tasks N] [--short] [--topology up|parts]`: one campaign of each.

Says first how to run the same again.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Campaign
from tests.chaos.checker import violations
from tests.chaos.plan import Topology, plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--short", action="store_true", help="everything dies once only")
    parser.add_argument(
        "--topology", type=Topology, choices=list(Topology), help="one of them only"
    )
    options = parser.parse_args()
    chosen = [options.topology] if options.topology else list(Topology)
    return max(campaign(options, topology) for topology in chosen)


def campaign(options: argparse.Namespace, topology: Topology) -> int:
    words = f"--seed {options.seed} --tasks {options.tasks} --topology {topology}"
    replay = f'make chaos ARGS="{words}{" --short" if options.short else ""}"'
    print(f"this campaign again: {replay}", flush=True)
    # Others may pass: as root PostgreSQL runs as a system user.
    folder = Path(tempfile.mkdtemp(prefix="mt-chaos-"))
    (run_dir := folder / "run").mkdir()
    for place in (folder, run_dir):
        place.chmod(0o711)
    planned = plan(options.seed, options.tasks, pairs=not options.short, topology=topology)
    try:
        wrong = violations(Campaign(planned, folder, run_dir).run())
    except BaseException:
        print(f"not settled; everything is in {folder}\nthis campaign again: {replay}", flush=True)
        raise
    if wrong:
        print(*wrong, f"everything is in {folder}", f"this campaign again: {replay}", sep="\n")
        return 1
    shutil.rmtree(folder)
    print("nothing lost, nothing doubled, nothing left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
