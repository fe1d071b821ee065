"""`python -m tests.chaos [--seed N] [--tasks N] [--short] [--kind up|parts|mixed]`: a campaign of each kind.

``up`` and ``parts`` kill everything under one group, in the one or the other topology; a ``mixed`` one
combines kills, cuts, refusals and verbs over several groups and hosts. Says first how to run the same again.
"""

import argparse
import pickle
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos import checker
from tests.chaos.campaign import Campaign
from tests.chaos.mixed import judge
from tests.chaos.mixed.campaign import MixedCampaign
from tests.chaos.mixed.plan import mixed_plan
from tests.chaos.plan import Topology, plan

STORM = "mixed"
TASKS = {Topology.UP: 3_000, Topology.PARTS: 3_000, STORM: 10_000}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--tasks", type=int, help="default: 3,000, and 10,000 of a mixed campaign")
    parser.add_argument("--short", action="store_true", help="everything happens once only")
    parser.add_argument("--kind", choices=[str(kind) for kind in TASKS], help="one of them only")
    options = parser.parse_args()
    return max(campaign(options, kind) for kind in TASKS if options.kind in (None, str(kind)))


def campaign(options: argparse.Namespace, kind: str) -> int:
    tasks = options.tasks or TASKS[kind]
    words = f"--kind {kind} --seed {options.seed} --tasks {tasks}"
    replay = f'make chaos ARGS="{words}{" --short" if options.short else ""}"'
    print(f"this campaign again: {replay}", flush=True)
    # Others may pass: as root PostgreSQL runs as a system user.
    folder = Path(tempfile.mkdtemp(prefix="mt-chaos-"))
    (run_dir := folder / "run").mkdir()
    for place in (folder, run_dir):
        place.chmod(0o711)
    try:
        if kind == STORM:
            wrong = mixed(options, tasks, folder, run_dir)
        else:
            wrong = kills(options, tasks, folder, run_dir, Topology(kind))
    except BaseException:
        print(f"not settled; everything is in {folder}\nthis campaign again: {replay}", flush=True)
        raise
    if wrong:
        print(*wrong, f"everything is in {folder}", f"this campaign again: {replay}", sep="\n")
        return 1
    shutil.rmtree(folder)
    print("nothing lost, nothing doubled, nothing left")
    return 0


def kills(
    options: argparse.Namespace, tasks: int, folder: Path, run_dir: Path, topology: Topology
) -> list[str]:
    planned = plan(options.seed, tasks, pairs=not options.short, topology=topology)
    return checker.violations(Campaign(planned, folder, run_dir).run())


def mixed(options: argparse.Namespace, tasks: int, folder: Path, run_dir: Path) -> list[str]:
    """Leaves its facts in the folder, for a judge that is changed afterwards."""
    planned = mixed_plan(options.seed, tasks, rounds=1 if options.short else 3)
    facts = MixedCampaign(planned, folder, run_dir).run()
    (folder / "facts.pickle").write_bytes(pickle.dumps(facts))
    longest = max(facts.histories.values(), default=0)
    print(f"{len(facts.disturbances)} troubles; the longest history has {longest} events")
    return judge.violations(facts)


if __name__ == "__main__":
    sys.exit(main())
