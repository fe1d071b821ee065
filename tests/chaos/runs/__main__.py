"""`python -m tests.chaos.runs [--seed N] [--runs N]`: kill -9 of each part at each moment of a run.

Says first how to run the same again.
"""

import argparse
import pickle
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.runs.campaign import RunCampaign
from tests.chaos.runs.judge import violations
from tests.chaos.runs.plan import TASKS, planned_runs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.runs", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--runs", type=int, default=300)
    options = parser.parse_args()
    replay = f'make chaos-runs ARGS="--seed {options.seed} --runs {options.runs}"'
    print(f"this campaign again: {replay}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="mt-chaos-"))
    (run_dir := folder / "run").mkdir()
    for place in (folder, run_dir):
        place.chmod(0o711)
    planned = planned_runs(options.seed, options.runs)
    try:
        facts = RunCampaign(planned, options.seed, folder, run_dir).run()
    except BaseException:
        print(f"not settled; everything is in {folder}\nthis campaign again: {replay}", flush=True)
        raise
    (folder / "facts.pickle").write_bytes(pickle.dumps(facts))
    if wrong := violations(facts):
        print(*wrong, f"everything is in {folder}", f"this campaign again: {replay}", sep="\n")
        return 1
    shutil.rmtree(folder)
    kills = sum(one.kill is not None for one in planned)
    print(
        f"{len(facts.runs)} runs of up to {TASKS} tasks, {kills} kills, "
        f"{len(facts.executions)} executions: nothing lost, nothing doubled, nothing left"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
