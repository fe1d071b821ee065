"""Explanations: the chain of conditions with values, and the smallest change, confirmed by a decision."""

from collections.abc import Callable
from typing import Any

import pytest

from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import gains_of
from mitosis.scheduling.changes import apply_change
from mitosis.scheduling.decide import decided_round
from mitosis.scheduling.explain import Explained, explain_group
from mitosis.scheduling.facts import Capacity, Failure, Progress
from mitosis.scheduling.policy import Policy
from tests.support.scheduling import HOUR, NOW, OTHERS, Fleet

WAITING = 1
"""The task group that is explained."""


def explained(fleet: Fleet) -> Explained:
    return explain_group(fleet.snapshot, NOW, WAITING)


def confirmed(fleet: Fleet, found: Explained) -> bool:
    """Whether a decision after the smallest change gives the task group a host."""
    assert found.smallest is not None
    copied, now = fleet.snapshot.copy(), NOW
    for change in found.smallest.changes:
        now = apply_change(copied, change, now)
    return bool(gains_of(decided_round(copied, now).actions, WAITING))


def obstacle(found: Explained, host: int = 1) -> tuple[str, str]:
    (of_host,) = (chain for chain in found.chains if chain.host == host)
    assert of_host.first_obstacle is not None
    return of_host.first_obstacle.code, of_host.first_obstacle.sentence


def failing(kind: HostFailureKind) -> Callable[[Fleet], object]:
    return lambda fleet: (
        fleet.host(
            1,
            failures=(
                Failure(
                    group=1, group_name="g1", kind=kind, reason="exit code 3", next_at=NOW + 60
                ),
            ),
        ),
        fleet.group(WAITING),
    )


def with_holder(
    lease: dict[str, Any], holder: dict[str, Any], **waiting: Any
) -> Callable[[Fleet], object]:
    return lambda fleet: (
        fleet.group(2, **{"unfinished": 5, "ready": 0, **holder}),
        fleet.lease(2, 1, **lease),
        fleet.group(WAITING, **waiting),
    )


def given_away(fleet: Fleet) -> None:
    fleet.group(2, priority=10)
    fleet.group(WAITING, priority=3)


def two_reasons(fleet: Fleet) -> None:
    fleet.host(1, draining=True)
    fleet.group(WAITING, on=[], assignment_method="user_specified")


IDLE = {"progress": Progress.ROOM, "idle_since": NOW - 60, "affinity_until": NOW + HOUR}
SITUATIONS: dict[str, tuple[Callable[[Fleet], object], str, str, str]] = {
    "no work": (
        lambda fleet: fleet.group(WAITING, ready=0),
        "no_work",
        "is not needed: no task is ready",
        "submit 1 more task to g1",
    ),
    "max_managers": (
        lambda fleet: fleet.group(WAITING, max_managers=0),
        "max_managers",
        "is not needed: the task group has 0 of at most 0 hosts",
        "raise max_managers of g1 to 1",
    ),
    "tags": (
        lambda fleet: fleet.group(WAITING, tags=frozenset({"gpu"}), on=[]),
        "tags",
        "lacks gpu; the task group needs all of gpu",
        "tag gpu on h1 and refresh the hosts of g1",
    ),
    "role": (
        lambda fleet: fleet.group(WAITING, user_group=3, user_group_name="team-a"),
        "no_role",
        "has no write role in user group team-a",
        "give h1 a write role in user group team-a",
    ),
    "not named": (
        lambda fleet: fleet.group(WAITING, assignment_method="user_specified", on=[]),
        "not_named",
        "is not named for the task group",
        "add h1 to g1",
    ),
    "removed": (
        lambda fleet: fleet.group(WAITING, on=[], removed=1),
        "removed",
        "was removed from the task group; to add it: mitosis group managers",
        "add h1 to g1",
    ),
    "too small": (
        lambda fleet: fleet.group(WAITING, demand=Capacity(1, 8)),
        "too_small",
        "is too small: it has 0 of 8 cores",
        "change the plan of g1 so that it fits h1",
    ),
    "draining": (
        lambda fleet: (fleet.host(1, draining=True), fleet.group(WAITING)),
        "draining",
        "is draining: it finishes what it runs and takes nothing new",
        "end the drain of h1",
    ),
    "no contact": (
        lambda fleet: (
            fleet.host(1, in_contact=False, last_contact_at=NOW - 15),
            fleet.group(WAITING),
        ),
        "no_contact",
        "was last seen 15 s ago; silence of 10 s is allowed",
        "bring h1 back into contact",
    ),
    "unclean": (
        lambda fleet: (fleet.host(1, unclean=frozenset({9})), fleet.group(WAITING)),
        "unclean",
        "cleans up after another task group",
        "wait until h1 has cleaned up",
    ),
    "setup failed": (
        failing(HostFailureKind.SETUP_FAILED),
        "setup_failed",
        "setup failed: exit code 3; it is not repeated",
        "repair the setup of g1 on h1 and retry it",
    ),
    "quarantined": (
        failing(HostFailureKind.QUARANTINED),
        "quarantined",
        "is quarantined: exit code 3",
        "wait 60 s: h1 is tried again then",
    ),
    "workers": (
        failing(HostFailureKind.WORKERS_NOT_STARTED),
        "workers_not_started",
        "could not start workers: exit code 3; tried again in 60 s",
        "wait 60 s: h1 is tried again then",
    ),
    "given away": (
        given_away,
        "rank",
        "is offered to g2, which goes first: priority 10 is above 3",
        "set the priority of g1 to 10",
    ),
    "idle": (
        with_holder(IDLE, {"teardown_seconds": 100.0, "priority": 9}, setup_seconds=140.0),
        "busy",
        "is busy with another task group of higher priority: g2 (priority 9); this one has priority 0",
        "wait 3 min: h1 will have been idle for long enough",
    ),
    "affinity": (
        with_holder({"affinity_until": NOW + 600}, {"priority": -1}),
        "busy",
        "is busy with another task group: g2",
        "wait 10 min: the affinity of the lease on h1 is over then",
    ),
    "renewed lease of a higher priority": (
        with_holder({"affinity_until": NOW + 600, "renewed": True}, {"priority": 7}),
        "busy",
        "is busy with another task group of higher priority: g2",
        "set the priority of g1 to 7",
    ),
    "two reasons": (
        two_reasons,
        "not_named",
        "is not named for the task group",
        "add h1 to g1, then end the drain of h1",
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_smallest_change_leads_to_a_lease(name: str) -> None:
    build, code, sentence, change = SITUATIONS[name]
    fleet = Fleet(1)
    build(fleet)
    found = explained(fleet)
    assert not found.gets
    assert obstacle(found)[0] == code
    assert sentence in obstacle(found)[1]
    assert found.smallest is not None
    assert found.smallest.line == change
    assert confirmed(fleet, found)


def test_of_all_hosts_the_cheapest_change_is_returned_and_all_obstacles_count() -> None:
    fleet = Fleet(3)
    fleet.host(1, in_contact=False)
    fleet.host(2, draining=True, serves=frozenset({OTHERS}))
    fleet.host(3, draining=True)
    fleet.group(WAITING)
    found = explained(fleet)
    assert found.smallest is not None
    assert found.smallest.line == "end the drain of h3"
    assert [chain.host for chain in found.chains] == [1, 2, 3]


CONTESTED: list[tuple[Callable[[Fleet], object], str, str]] = [
    (
        with_holder({"affinity_until": NOW + HOUR}, {"priority": 9}, priority=2),
        "held_rank",
        "works for g2, and priority 2 is not above 9",
    ),
    (
        with_holder({"affinity_until": NOW + HOUR}, {}, priority=1),
        "held_affinity",
        "stays with g2 for 60 min; then priority 1 is above 0",
    ),
    (
        with_holder(IDLE, {"teardown_seconds": 200.0}, priority=-1),
        "held_idle",
        "is idle under g2 for 60 s of 3 min 20 s",
    ),
    (
        with_holder({"progress": Progress.STARTING}, {}),
        "held_starting",
        "is being set up for g2 since 30 min",
    ),
    (
        with_holder({"state": LeaseState.ENDING, "for_group": 2, "ending_since": NOW - 7}, {}),
        "held_ending",
        "finishes its tasks of g2 for g2, since 7 s",
    ),
    (
        lambda fleet: (
            with_holder({"affinity_until": NOW}, {"priority": -1})(fleet),
            fleet.host(1, moved_at=(NOW - 600.0,) * 6),
        ),
        "held_moves",
        "was moved 6 times within an hour of 6 allowed; again in 50 min",
    ),
]


@pytest.mark.parametrize(("build", "code", "sentence"), CONTESTED)
def test_what_protects_a_lease_is_said_with_its_values(
    build: Callable[[Fleet], object], code: str, sentence: str
) -> None:
    fleet = Fleet(1)
    build(fleet)
    steps = {step.code: step.sentence for step in explained(fleet).chains[0].steps}
    assert steps[code] == sentence


def test_equal_priorities_are_compared_by_their_leases() -> None:
    fleet = Fleet(2)
    fleet.group(2)
    fleet.group(WAITING, ready=100)
    fleet.lease(2, 1, affinity_until=NOW + HOUR)
    fleet.lease(WAITING, 2)
    (chain, _) = explained(fleet).chains
    assert chain.steps[-1].sentence == (
        "works for g2, and with priority 0 as well, the task group has 1 leases of 1;"
        " it goes first with 2 fewer, or none"
    )


def test_a_group_that_gets_a_host_or_has_ended_needs_no_change() -> None:
    fleet = Fleet(1)
    fleet.group(WAITING)
    found = explained(fleet)
    assert found.gets
    assert found.smallest is None
    assert found.chains[0].first_obstacle is None
    fleet.group(WAITING, goes_on=False)
    found = explained(fleet)
    assert not found.gets
    assert found.smallest is None
    assert obstacle(found)[0] == "ended"


def test_a_second_group_that_goes_first_is_overtaken_too() -> None:
    fleet = Fleet(1)
    fleet.host(1, draining=True)
    fleet.group(2, priority=4)
    fleet.group(WAITING)
    found = explained(fleet)
    assert found.smallest is not None
    assert found.smallest.line == "set the priority of g1 to 4, then end the drain of h1"
    assert confirmed(fleet, found)


def test_so_many_tasks_are_to_be_submitted_that_a_second_host_pays() -> None:
    """Ten seconds each, two at once, setup two minutes: 48 ready tasks pay for two hosts."""
    fleet = Fleet(2)
    measured = {"tasks_measured": 5, "task_seconds": 10.0, "setup_seconds": 120.0}
    fleet.group(WAITING, ready=2, workers=2, **measured)  # type: ignore[arg-type]
    fleet.lease(WAITING, 2)
    found = explained(fleet)
    assert obstacle(found) == (
        "enough",
        "is not needed: the task group has 1 of the 1 hosts that it can use;"
        " 2 tasks are ready, 10 s each, which is 10 s of work for a host with 2 workers;"
        " each host must have 2 min of it (setup 2 min, teardown 0 s, at least 60 s)",
    )
    assert found.smallest is not None, "no number of tasks is said to pay for a second host"
    assert found.smallest.line == "submit 46 more tasks to g1"
    assert confirmed(fleet, found)


def test_the_number_of_tasks_that_pays_for_a_second_host_is_rounded_up() -> None:
    """Seven seconds each, setup a minute: 17 tasks are 119 s of work, 18 are 126 s."""
    fleet = Fleet(2)
    fleet.group(WAITING, ready=2, tasks_measured=5, task_seconds=7.0, setup_seconds=60.0)
    fleet.lease(WAITING, 2)
    found = explained(fleet)
    assert found.smallest is not None, "no number of tasks is said to pay for a second host"
    assert found.smallest.line == "submit 16 more tasks to g1"


def test_a_renewed_lease_is_protected_from_a_group_that_has_a_host() -> None:
    fleet = Fleet(2)
    fleet.group(2, priority=-1)
    fleet.group(WAITING, ready=100)
    fleet.lease(2, 1, affinity_until=NOW + 600, renewed=True)
    fleet.lease(WAITING, 2)
    codes = [step.code for step in explained(fleet).chains[0].steps]
    assert codes[-1] == "held_affinity"


def test_only_hosts_that_are_asked_for_are_explained() -> None:
    fleet = Fleet(3)
    fleet.group(WAITING, on=[])
    found = explain_group(fleet.snapshot, NOW, WAITING, [2, 99], changes=False)
    assert found.chains == [chain for chain in explained(fleet).chains if chain.host == 2]
    assert (found.smallest, explained(fleet).smallest is None) == (None, False)


def left_over(found: Explained) -> list[tuple[int, list[str]]]:
    return [(chain.host, [step.code for step in chain.obstacles]) for chain in found.chains]


def test_hosts_that_the_decision_leaves_over_say_why() -> None:
    fleet = Fleet(3)
    fleet.group(WAITING, ready=4, max_managers=1)
    found = explained(fleet)
    (given,) = [gain.host for gain in found.gets]
    assert left_over(found) == [
        (host, [] if host == given else ["max_managers"]) for host in (1, 2, 3)
    ]
    (_, *others) = sorted(found.chains, key=lambda chain: chain.host != given)
    assert others[0].obstacles[0].sentence == (
        "is not needed: the task group has 1 of at most 1 hosts"
    )
    fleet.change_group(WAITING, max_managers=None)
    codes = [codes for _, codes in left_over(explained(fleet))]
    assert sorted(codes) == [[], [], ["enough"]], "two tasks for each worker"


def test_hosts_that_could_be_taken_and_are_not_needed_say_why() -> None:
    fleet = Fleet(2)
    fleet.group(2, unfinished=5, ready=0)
    for host in (1, 2):
        fleet.idle(2, host, 3600.0)
    fleet.group(WAITING, priority=1)
    found = explained(fleet)
    assert len(found.gets) == 1
    assert sorted(codes for _, codes in left_over(found)) == [[], ["enough"]]


def test_what_a_decision_leaves_to_the_next_one_is_said() -> None:
    fleet = Fleet(2, Policy(actions_per_round=1))
    fleet.group(WAITING, ready=4)
    found = explained(fleet)
    ((code,),) = [codes for _, codes in left_over(found) if codes]
    assert code == "next_round"
    lines = [step.sentence for chain in found.chains for step in chain.obstacles]
    assert lines == ["waits for the next round: this one has made 1 of at most 1 changes"]


def test_a_host_that_the_decision_takes_for_another_group_names_it_and_its_rank() -> None:
    fleet = Fleet(1)
    fleet.group(2, unfinished=5, ready=0)
    fleet.idle(2, 1, 3600.0)
    fleet.group(3, priority=7)
    fleet.group(WAITING, priority=1)
    (chain,) = explained(fleet).chains
    assert [(step.code, step.sentence) for step in chain.obstacles] == [
        ("held_ending", "is taken from g2 for g3, which goes first: priority 7 is above 1")
    ]


@pytest.mark.spec("S000-164")
def test_a_host_that_the_limit_of_a_decision_cuts_off_is_named_with_the_limit() -> None:
    fleet = Fleet(3, policy=Policy(actions_per_round=2))
    fleet.group(2, ready=100, priority=1)
    fleet.group(WAITING)
    found = explained(fleet)
    assert not found.gets
    line = "waits for the next round: this one has made 2 of at most 2 changes"
    assert obstacle(found, host=3) == ("next_round", line)
    assert obstacle(found, host=1)[1].startswith("is offered to g2")
    for _, host in fleet.offers():
        fleet.lease(2, host)
    fleet.work(2, ready=0)
    assert fleet.offers() == [(WAITING, 3)]
