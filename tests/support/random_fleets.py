"""Random facts and fleets for properties of the scheduling decision: up to 5 hosts and 4 task groups."""

from typing import Any

from hypothesis import strategies as st

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lease_settings import LeaseTerms
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.facts import Capacity, Failure, Freed, Progress, Work
from mitosis.scheduling.policy import Policy
from tests.support.scheduling import NOW, OTHERS, USERS, Fleet

GROUPS = st.integers(1, 4)
SOME_GROUPS = st.frozensets(GROUPS, max_size=3)
TIMES = st.sampled_from([NOW - 7200.0, NOW - 250.0, NOW - 100.0, NOW - 1.0, NOW + 10.0])
CAPACITIES = st.sampled_from([Capacity(), Capacity(3, 8, 100, 1)])
DEMANDS = st.sampled_from([Capacity(), Capacity(1, 4, 10, 0)])
FAILURES = st.builds(
    Failure,
    group=GROUPS,
    group_name=st.just("g"),
    kind=st.sampled_from(HostFailureKind),
    reason=st.just("exit code 3"),
    next_at=st.none() | TIMES,
)
HOST_FACTS: dict[str, st.SearchStrategy[Any]] = {
    "capacity": CAPACITIES,
    "cores": st.sampled_from([None, (), (0, 1), (0, 1, 2)]),
    "serves": st.frozensets(st.sampled_from([USERS, OTHERS])),
    "in_contact": st.booleans(),
    "draining": st.booleans(),
    "warm": SOME_GROUPS,
    "unclean": SOME_GROUPS,
    "failures": st.lists(FAILURES, max_size=2, unique_by=lambda f: (f.kind, f.group)).map(tuple),
    "moved_at": st.lists(TIMES, max_size=7).map(sorted).map(tuple) | st.just((NOW - 60.0,) * 6),
    "freed_for": st.lists(st.builds(Freed, GROUPS, TIMES), max_size=2).map(tuple),
}
GROUP_FACTS: dict[str, st.SearchStrategy[Any]] = {
    "user_group": st.sampled_from([USERS, OTHERS]),
    "priority": st.integers(-1, 1),
    "goes_on": st.booleans(),
    "refuses_tasks": st.booleans(),
    "demand": DEMANDS,
    "workers": st.integers(1, 3),
    "max_managers": st.none() | st.integers(0, 2),
    "leases": st.sampled_from([None, LeaseTerms(idle_threshold=5, longest_idle=5)]),
    "members": st.integers(0, 31),
}
WORK = st.builds(
    Work,
    ready=st.integers(0, 9),
    unfinished=st.integers(0, 9),
    delayed_until=st.none() | TIMES,
    hostless_since=st.none() | TIMES,
    tasks_measured=st.sampled_from([0, 9]),
    task_seconds=st.sampled_from([1.0, 1000.0]),
    setup_seconds=st.sampled_from([0.0, 300.0]),
)
LEASE_FACTS: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from([LeaseState.OFFERED, LeaseState.ACTIVE, LeaseState.ENDING]),
    "progress": st.sampled_from(Progress),
    "affinity_until": TIMES,
    "renewed": st.booleans(),
    "idle_since": st.none() | TIMES,
    "for_group": st.none() | GROUPS,
    "ending_since": TIMES,
}


def mostly(usual: Any, other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The usual value six times out of seven, or so."""
    drawn = st.tuples(st.integers(0, 6), other)
    return drawn.map(lambda pair: pair[1] if pair[0] == 6 else usual)


USABLE_HOST: dict[str, st.SearchStrategy[Any]] = {
    **HOST_FACTS,
    "serves": mostly(frozenset({USERS, OTHERS}), HOST_FACTS["serves"]),
    "in_contact": mostly(True, st.booleans()),
    "draining": mostly(False, st.booleans()),
    "unclean": mostly(frozenset(), SOME_GROUPS),
    "failures": mostly((), HOST_FACTS["failures"]),
    "moved_at": mostly((), HOST_FACTS["moved_at"]),
    "freed_for": mostly((), HOST_FACTS["freed_for"]),
}
WAITING_GROUP: dict[str, st.SearchStrategy[Any]] = {
    **GROUP_FACTS,
    "goes_on": mostly(True, st.booleans()),
    "members": mostly(31, st.integers(0, 31)),
    "max_managers": mostly(None, GROUP_FACTS["max_managers"]),
}


IDLE_LEASE = st.fixed_dictionaries(
    {
        "progress": st.just(Progress.ROOM),
        "idle_since": TIMES,
        "affinity_until": st.just(NOW + 100.0),
    }
)
BUSY_LEASE = st.fixed_dictionaries({"affinity_until": TIMES, "renewed": st.booleans()})
ANY_LEASE = st.one_of(IDLE_LEASE, IDLE_LEASE, BUSY_LEASE, st.fixed_dictionaries(LEASE_FACTS))


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """A fleet whose hosts have no more leases than they have room for."""
    fleet = Fleet()
    for number in range(1, draw(st.integers(1, 5)) + 1):
        fleet.host(number, **draw(st.fixed_dictionaries(USABLE_HOST)))
    groups = draw(st.integers(2, 4))
    for number in range(1, groups + 1):
        fleet.put_group(number, draw(st.fixed_dictionaries(WAITING_GROUP)), draw(WORK))
    for on, host in fleet.snapshot.hosts.items():
        for _ in range(draw(st.integers(0, host.fact.capacity.slots))):
            group = draw(st.integers(1, groups))
            if host.free.covers(fleet.snapshot.groups[group].fact.demand):
                fleet.lease(group, on, **draw(ANY_LEASE))
    _give_hosts(fleet)
    return fleet


def _give_hosts(fleet: Fleet) -> None:
    """A task group that holds a lease is not without a host."""
    for number, group in fleet.snapshot.groups.items():
        if group.leases:
            fleet.work(number, hostless_since=None)


@st.composite
def contested_fleets(draw: st.DrawFn) -> Fleet:
    """A fleet whose hosts all work, most of them past their affinity, while other task groups wait."""
    fleet = Fleet(draw(st.integers(2, 5)))
    groups = draw(st.integers(3, 5))
    for number in range(1, groups + 1):
        facts = {
            "user_group": draw(st.sampled_from([USERS, OTHERS])),
            "priority": draw(st.sampled_from([0, 0, 0, -1, 1])),
            "members": draw(mostly(31, st.integers(1, 31))),
        }
        work = Work(
            ready=draw(st.sampled_from([0, 1, 4])),
            unfinished=9,
            teardown_seconds=draw(st.sampled_from([0.0, 50.0])),
        )
        fleet.put_group(number, facts, work)
    for on in fleet.snapshot.hosts:
        fleet.lease(
            draw(st.integers(1, groups)),
            on,
            affinity_until=draw(mostly(NOW - 1.0, st.just(NOW + 100.0))),
            renewed=draw(st.booleans()),
        )
    return fleet


PLAIN_TIMES = st.sampled_from([NOW - 7200.0, NOW - 400.0, NOW - 250.0, NOW - 1.0, NOW + 10.0])
HELD_LEASE: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(dict, progress=st.just(Progress.ROOM), idle_since=PLAIN_TIMES),
    st.builds(dict, affinity_until=PLAIN_TIMES, renewed=st.booleans()),
    st.builds(dict, affinity_until=PLAIN_TIMES, renewed=st.booleans()),
    st.builds(
        dict,
        state=st.sampled_from([LeaseState.ENDING, LeaseState.OFFERED]),
        for_group=st.none() | st.integers(1, 7),
        ending_since=TIMES,
    ),
)


@st.composite
def exclusive_fleets(draw: st.DrawFn, policies: st.SearchStrategy[Policy]) -> Fleet:
    """A fleet in which each host has room for one lease, with all that a decision looks at."""
    fleet = Fleet(policy=draw(policies))
    for number in range(1, draw(st.integers(1, 7)) + 1):
        facts = {**USABLE_HOST, "capacity": st.just(Capacity())}
        fleet.host(number, **draw(st.fixed_dictionaries(facts)))
    groups = draw(st.integers(2, 7))
    for number in range(1, groups + 1):
        facts = {
            **WAITING_GROUP,
            "demand": st.just(Capacity()),
            "members": mostly(127, st.integers(0, 127)),
            "created_at": st.sampled_from([1.0, 2.0]),
        }
        work = Work(
            ready=draw(st.sampled_from([0, 1, 4, 9])),
            unfinished=9,
            hostless_since=draw(mostly(None, st.just(NOW - 90_000.0))),
            task_seconds=draw(st.sampled_from([1.0, 1000.0])),
            setup_seconds=draw(st.sampled_from([0.0, 300.0, 390.0])),
            teardown_seconds=draw(st.sampled_from([0.0, 50.0])),
        )
        fleet.put_group(number, draw(st.fixed_dictionaries(facts)), work)
    for on in fleet.snapshot.hosts:
        if draw(mostly(True, st.just(False))):
            fleet.lease(draw(st.integers(1, groups)), on, **draw(HELD_LEASE))
    _give_hosts(fleet)
    return fleet
