"""Run one Python function over a grid of parameters and print a table of its results.

The function computes the peak of an epidemic in the SIR model, as a share of the population, for every
combination of how contagious it is and how long people are ill.

    python examples/parameter_sweep/sweep.py

Needs a running stack (`mitosis up`), or MITOSIS_API_URL and MITOSIS_TOKEN.
"""

import itertools
import sys

from mitosis import SyncClient, handler

CONTAGION = (0.15, 0.2, 0.3, 0.5, 0.8)
"""New infections per ill person and day."""
DAYS_ILL = (3, 5, 8, 13)


@handler(timeout=60, retries=1)
def peak(contagion: float, days_ill: int) -> tuple[float, float]:
    """Return the largest share of people who are ill at the same time, and the day of this peak."""
    step = 0.01
    healthy, ill, day = 0.999, 0.001, 0.0
    worst = (ill, day)
    while ill > 0.0001 and day < 1000:
        infected = contagion * healthy * ill * step
        healthy, ill, day = healthy - infected, ill + infected - ill / days_ill * step, day + step
        worst = max(worst, (ill, day))
    return worst


def main() -> int:
    grid = list(itertools.product(CONTAGION, DAYS_ILL))
    with SyncClient.connect() as client, client.task_group(workers=2) as group:
        print(f"{len(grid)} tasks in task group {group.info.name}")
        worst = dict(zip(grid, group.starmap(peak, grid), strict=True))
    show(worst)
    return 0


def show(worst: dict[tuple[float, int], tuple[float, float]]) -> None:
    print("\npeak of the epidemic, and its day")
    print("contagion " + "".join(f"{f'{days} days':>16}" for days in DAYS_ILL))
    for contagion in CONTAGION:
        cells = (worst[contagion, days] for days in DAYS_ILL)
        print(f"{contagion:9.2f} " + "".join(f"{ill:8.1%} day{day:4.0f}" for ill, day in cells))


if __name__ == "__main__":
    sys.exit(main())
