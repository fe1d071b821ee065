"""The health of a registration: the definition in SQL and the one in Python give the same answers."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from mitosis.contracts.worker_health import RegistrationTimes, WorkerHealth, worker_health
from mitosis.store.registry.health import with_health
from tests.support.campaigns import world

NOW = datetime(2026, 3, 4, 5, 6, 7, 890_123, UTC)
TICK = timedelta(microseconds=1)
EDGES = [
    timedelta(seconds=seconds) + ticks * TICK
    for seconds in (-1, 0, 1, 10, 30, 119, 120, 121, 600)
    for ticks in (-1, 0, 1)
]
COMPARED = with_health(
    """
    SELECT $health$ AS health
      FROM unnest(%s::timestamptz[], %s::timestamptz[], %s::timestamptz[])
           WITH ORDINALITY AS r (last_heartbeat_at, alive_until, unregistered_at, n)
     CROSS JOIN (SELECT %s::timestamptz AS now) AS clock ORDER BY r.n
    """
)


def cases(seed: int) -> list[RegistrationTimes]:
    """Every pair of edges, and times at random."""
    numbers = random.Random(seed)
    ages = [*EDGES, *(timedelta(seconds=numbers.uniform(0, 700)) for _ in range(20))]
    return [
        RegistrationTimes(
            last_heartbeat_at=None if age is None else NOW - age,
            alive_until=NOW + left,
            unregistered_at=ended,
        )
        for age in [None, *ages]
        for left in [*EDGES, *(-edge for edge in EDGES), numbers.choice(ages)]
        for ended in ([None, NOW] if numbers.random() < 0.2 else [None])
    ]


@pytest.mark.spec("C-20", "S004-16")
async def test_both_definitions_agree_at_every_boundary(database: str) -> None:
    times = cases(seed := random.randrange(2**32))
    async with world(database) as w:
        rows = await w.rows(
            COMPARED,
            [one.last_heartbeat_at for one in times],
            [one.alive_until for one in times],
            [one.unregistered_at for one in times],
            NOW,
        )
    found = [row["health"] for row in rows]
    assert found == [str(worker_health(one, NOW)) for one in times], f"seed {seed}"
    assert set(found) == set(WorkerHealth)
