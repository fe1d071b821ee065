"""`make chaos-services`: worker services under kills, stops, changed configurations and drains.

Says first how to run the same again. ``ARGS="--seed N --services N --tasks N"``
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.services.campaign import FEWEST, ServiceCampaign
from tests.chaos.services.judge import violations


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos-services", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=10_000)
    given = parser.parse_args()
    if given.services < FEWEST:
        parser.error(f"--services: at least {FEWEST}, so that each named task has one")
    words = f"--seed {given.seed} --services {given.services} --tasks {given.tasks}"
    replay = f'this campaign again: make chaos-services ARGS="{words}"'
    print(replay, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="mt-services-"))
    (run_dir := folder / "run").mkdir()
    for place in (folder, run_dir):
        place.chmod(0o711)
    campaign = ServiceCampaign(folder, run_dir, given.seed, given.services, given.tasks)
    try:
        wrong = violations(campaign.run())
    except BaseException:
        print(f"not settled; everything is in {folder}\n{replay}", flush=True)
        raise
    print(dict(campaign.done), flush=True)
    if wrong:
        print(*wrong[:50], f"{len(wrong)} faults; everything is in {folder}", replay, sep="\n")
        return 1
    shutil.rmtree(folder)
    print(f"{given.tasks} tasks on {given.services} services: nothing lost, nothing doubled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
