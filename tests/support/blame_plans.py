"""Plans of random fleets that serve several task groups, and those that were wrong once (C-33)."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st


@dataclass(frozen=True)
class GroupPlan:
    """One task group."""

    tasks: int
    broken: frozenset[int]
    retries: int
    workers: int
    priority: int
    at: int
    """It is submitted in this step."""
    most_hosts: int | None = None
    long_seconds: float = 0.0
    """Each fifth task takes so long where it does not fail because of its host; the others a step."""
    all_long: bool = False
    """All tasks do."""


@dataclass(frozen=True)
class Plan:
    """One fleet."""

    groups: tuple[GroupPlan, ...]
    bad_after: tuple[int | None, ...]
    """Of each host: the number of tasks after which it fails everything; None: it is good."""
    bad_for: tuple[frozenset[int], ...]
    """Of each such host: the task groups whose tasks it fails."""
    silent: tuple[tuple[int, float, bool] | None, ...]
    """Of each host, if it is good: it is silent from this step on, for so many seconds, then restarted."""
    seed: int
    lost_after: float = 30.0
    """A silent host is given up after so long."""
    verbs: tuple[tuple[int, str, int], ...] = ()
    """In this step, this one, of the host or the task group with this number."""


GROUP_PLANS = st.builds(
    GroupPlan,
    tasks=st.integers(1, 30),
    broken=st.just(frozenset()) | st.frozensets(st.integers(0, 29), max_size=5),
    retries=st.sampled_from([0, 0, 1, 2]),
    workers=st.integers(1, 8),
    priority=st.sampled_from([0, 0, 1]),
    at=st.sampled_from([0, 0, 1, 3, 10]),
    most_hosts=st.sampled_from([None, None, 1, 2, 3, 4]),
    long_seconds=st.sampled_from([0.0, 0.0, 0.0, 30.0, 200.0]),
) | st.builds(
    GroupPlan,
    tasks=st.integers(5, 20),
    broken=st.just(frozenset()) | st.frozensets(st.integers(0, 4), max_size=1),
    retries=st.sampled_from([0, 0, 1]),
    workers=st.integers(3, 8),
    priority=st.just(0),
    at=st.sampled_from([0, 1]),
    long_seconds=st.just(900.0),
    all_long=st.just(True),
)
MOST = 5
VERBS = st.tuples(
    st.integers(1, 20),
    st.sampled_from(
        ["drain", "resume", "repair", "close", "reopen", "cancel", "one", "four", "no workers"]
    ),
    st.integers(0, MOST - 1),
)
ALL = frozenset(range(3))
PLANS = st.builds(
    Plan,
    groups=st.lists(GROUP_PLANS, min_size=1, max_size=3).map(tuple),
    bad_after=st.lists(st.sampled_from([None, None, 0, 0, 3, 9]), min_size=2, max_size=MOST).map(
        tuple
    ),
    bad_for=st.tuples(*[st.just(ALL) | st.frozensets(st.integers(0, 2), min_size=1)] * MOST),
    silent=st.tuples(
        *[
            st.none()
            | st.tuples(
                st.integers(0, 12), st.sampled_from([20.0, 60.0, 120.0, 240.0]), st.booleans()
            )
        ]
        * MOST
    ),
    seed=st.integers(0, 2**32),
    lost_after=st.sampled_from([30.0, 30.0, 90.0, 300.0]),
    verbs=st.lists(VERBS, max_size=3).map(tuple),
)


IDLE = Plan(
    groups=(
        GroupPlan(tasks=15, broken=frozenset(), retries=0, workers=1, priority=0, at=3),
        GroupPlan(tasks=19, broken=frozenset({7}), retries=1, workers=3, priority=0, at=0),
        GroupPlan(tasks=16, broken=frozenset({2}), retries=1, workers=1, priority=1, at=1),
    ),
    bad_after=(9, None),
    bad_for=(ALL, ALL),
    silent=((9, 120.0, False), (12, 20.0, False), None),
    seed=1916,
)
"""The only good host is idle for another task group, and nobody may take it as long as others are awaited."""

SWAPPED = Plan(
    groups=(
        GroupPlan(tasks=8, broken=frozenset(), retries=0, workers=8, priority=0, at=0),
        GroupPlan(tasks=8, broken=frozenset(), retries=0, workers=8, priority=0, at=0),
    ),
    bad_after=(0, 0),
    bad_for=(frozenset({0}), frozenset({1})),
    silent=(None, None, None),
    seed=3,
)
"""Each host is right for the task group of the other one, and suspected for its own."""
FULL = Plan(
    groups=(
        GroupPlan(
            tasks=20, broken=frozenset(), retries=0, workers=6, priority=0, at=0, most_hosts=1
        ),
    ),
    bad_after=(0, None),
    bad_for=(ALL, ALL),
    silent=(None, None, None),
    seed=0,
)
"""The broken host takes the only place of its task group."""
FOUR = Plan(
    groups=(
        GroupPlan(
            tasks=30, broken=frozenset(), retries=0, workers=8, priority=0, at=0, most_hosts=4
        ),
    ),
    bad_after=(0, 0, 0, 0, None),
    bad_for=(ALL,) * MOST,
    silent=(None,) * MOST,
    seed=1,
)
"""Four broken hosts take all places of their task group."""
DRAINED = replace(
    FULL,
    groups=(GroupPlan(tasks=20, broken=frozenset(), retries=2, workers=6, priority=0, at=0),),
    verbs=((4, "drain", 1),),
)
"""The only good host is drained while tasks wait for another attempt."""
LONG = replace(
    FULL,
    groups=(
        GroupPlan(
            tasks=20,
            broken=frozenset(),
            retries=0,
            workers=8,
            priority=0,
            at=0,
            long_seconds=900.0,
            all_long=True,
        ),
    ),
)
"""All tasks take longer than a host is suspected."""
HICCUP = replace(
    FULL,
    groups=(GroupPlan(tasks=90, broken=frozenset(), retries=0, workers=6, priority=0, at=0),),
    verbs=tuple((step, "no workers", 1) for step in range(4, 16, 2)),
)
"""The only good host cannot start workers for a moment, again and again."""
