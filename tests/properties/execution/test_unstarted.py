"""Claimed tasks that no worker begins do not wait while a worker or another host is free."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.simulated_hosts import World

LONG, SHORT = 60.0, 0.001
TWICE = [SHORT] * 2 + [0.004] * 12 + [0.9] * 8
"""The last task waits on two hosts in turn."""
HOST_SECONDS = 1.3
"""So long a host keeps what it does not begin: five looks, and some messages."""
BOUND_SECONDS = 2 * HOST_SECONDS
"""Another host may claim it as one task too many, before it has seen how long the others take."""
DEAF_BOUND_SECONDS = 3.0

hosts = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([None, None, 0, 1]), st.floats(0, 0.25)),
    min_size=1,
    max_size=3,
)
durations = st.lists(
    st.tuples(st.sampled_from([SHORT, 0.004, 0.3, 0.9, 2.0, LONG]), st.integers(1, 24)),
    min_size=1,
    max_size=4,
).map(lambda runs: [seconds for seconds, count in runs for _ in range(count)])


@pytest.mark.spec("S000-31", "S000-33")
@given(hosts=hosts, durations=durations)
@example(
    hosts=[(1, None, 0.0), (1, None, 0.1)],
    durations=[SHORT] * 400 + [LONG] + [SHORT] * 400,
)
@example(hosts=[(1, 32, 0.0), (1, 32, 0.1)], durations=[LONG] + [SHORT] * 60)
@example(hosts=[(2, None, 0.0)], durations=[SHORT] * 30 + [LONG] + [SHORT] * 30)
@example(hosts=[(1, None, 0.0), (3, None, 0.0), (3, None, 0.0)], durations=TWICE)
@settings(max_examples=examples(15))
def test_no_task_waits_longer_than_the_bound_while_a_worker_anywhere_is_idle(
    hosts: list[tuple[int, int | None, float]], durations: list[float]
) -> None:
    """Nor is one lost or begun twice: the world checks it at every step."""
    world = World(durations)
    for host in hosts:
        world.host(*host)
    world.run()
    assert world.longest_wait <= BOUND_SECONDS
    assert set(world.ended.values()) == {1}


@given(hosts=hosts, durations=durations, reads_late=st.booleans())
@example(
    hosts=[(1, None, 0.0), (1, None, 0.1)],
    durations=[SHORT] * 400 + [LONG] + [SHORT] * 400,
    reads_late=True,
)
@example(hosts=[(2, None, 0.0)], durations=[SHORT] * 30 + [2.0] * 3 + [SHORT] * 30, reads_late=True)
@settings(max_examples=examples(15))
def test_nor_behind_a_handler_in_code_that_reads_no_messages(
    hosts: list[tuple[int, int | None, float]], durations: list[float], reads_late: bool
) -> None:
    """A withdrawn task is begun by another worker, and not by the one that held it."""
    world = World(durations, deaf=True, reads_late=reads_late)
    for host in hosts:
        world.host(*host)
    world.run()
    assert world.longest_wait <= DEAF_BOUND_SECONDS
    assert set(world.ended.values()) == {1}
