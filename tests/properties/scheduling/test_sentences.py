"""Each sentence of `explain` has the value that was compared, and what it was compared with."""

import re
from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy
from mitosis.contracts.host_failures import HostFailureKind
from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.claims import ObjectionKind
from mitosis.scheduling.explain import explain_group
from mitosis.scheduling.facts import Capacity, Failure, Progress
from mitosis.scheduling.moment import Moment
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.predicates import PREDICATES
from mitosis.scheduling.sentences import held_of_useful
from mitosis.scheduling.sizes import useful_leases
from mitosis.scheduling.wording import compared, exact
from tests.support.examples import examples
from tests.support.scheduling import NOW, OTHERS, Fleet

WAITING, HOLDER = 1, 2
EXCLUSIVE = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)

Build = Callable[[Fleet, int, int], tuple[str, ...]]
"""Brings about that a condition does not hold, by two numbers from 1 to 40, the first less than the second;
returns the words of its sentence that are the value and the threshold."""


def no_work(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.group(WAITING, ready=0, unfinished=many)
    return f"0 of {many} unfinished", "at least 1"


def max_managers(fleet: Fleet, few: int, _: int) -> tuple[str, ...]:
    fleet.group(WAITING, ready=10_000, max_managers=few)
    for number in range(2, few + 2):
        fleet.host(number)
        fleet.lease(WAITING, number)
    return (f"has {few} of at most {few} hosts",)


def enough(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.host(2)
    fleet.group(WAITING, ready=few, workers=many)
    fleet.lease(WAITING, 2, progress=Progress.ROOM)
    ready = "1 task is ready" if few == 1 else f"{few} tasks are ready"
    return (
        "has 1 of the 1 hosts",
        ready,
        f"used for each {2 * many}, 2 for each of its {many} workers",
    )


def ended(fleet: Fleet, _: int, __: int) -> tuple[str, ...]:
    fleet.group(WAITING, goes_on=False)
    return "has ended", "open and closed"


def no_role(fleet: Fleet, _: int, many: int) -> tuple[str, ...]:
    fleet.group(WAITING, user_group=99, user_group_name=f"team-{many}")
    return "no write role", f"team-{many}"


def removed(fleet: Fleet, _: int, __: int) -> tuple[str, ...]:
    fleet.group(WAITING, on=[], removed=1)
    return "was removed from the task group", "--add h1"


def not_named(fleet: Fleet, _: int, __: int) -> tuple[str, ...]:
    fleet.group(WAITING, on=[], assignment_method="user_specified")
    return "is not named for the task group", "--add h1"


def tags(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    wanted = sorted(f"t{number}" for number in range(many))
    fleet.host(1, tags=frozenset(wanted[:few]))
    fleet.group(WAITING, on=[], tags=frozenset(wanted))
    return f"lacks {', '.join(wanted[few:])};", f"needs all of {', '.join(wanted)}"


def misfit(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.host(1, cores=tuple(range(few)))
    fleet.group(WAITING, binding=EXCLUSIVE, workers=many)
    return f"need {many} cores", f"{few} are listed" if few > 1 else "1 "


def too_small(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.host(1, capacity=Capacity(1, few))
    fleet.group(WAITING, demand=Capacity(1, many))
    return (f"has {few} of {many} cores",)


def no_contact(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.host(1, in_contact=False, last_contact_at=NOW - 10 - many)
    fleet.group(WAITING)
    return f"seen {exact(10 + many)} ago", "silence of 10 s"


def draining(fleet: Fleet, _: int, __: int) -> tuple[str, ...]:
    fleet.host(1, draining=True)
    fleet.group(WAITING)
    return "is draining", "until it is resumed"


def busy(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.group(HOLDER, priority=many)
    fleet.lease(HOLDER, 1)
    fleet.group(WAITING, priority=few)
    return f"g2 (priority {many})", f"this one has priority {few}"


def cleanup(fleet: Fleet, _: int, __: int) -> tuple[str, ...]:
    fleet.host(1, unclean=frozenset({WAITING}), debt="no process can be made")
    fleet.group(WAITING)
    return "cleans up after this task group", "no process can be made"


def unclean(fleet: Fleet, _: int, __: int) -> tuple[str, ...]:
    fleet.host(1, unclean=frozenset({HOLDER}), debt="no process can be made")
    fleet.group(WAITING)
    return "cleans up after another task group", "no process can be made"


def failure(kind: HostFailureKind, *words: str) -> Build:
    """The words of its reason, and of when or how the host is tried again."""

    def build(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
        made = Failure(
            group=WAITING,
            group_name="g1",
            kind=kind,
            failures=many,
            reason=f"exit code {few}",
            next_at=NOW + 60 * few,
        )
        fleet.host(1, failures=(made,))
        fleet.group(WAITING)
        values = {"failures": many, "reason": made.reason, "again": f"in {exact(60 * few)}"}
        return tuple(word.format_map(values) for word in words)

    return build


def rank(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.group(HOLDER, priority=many)
    fleet.group(WAITING, priority=few)
    return (f"priority {many} is above {few}",)


def held(fleet: Fleet, waiting: dict[str, Any], holder: dict[str, Any], **lease: Any) -> None:
    fleet.group(HOLDER, **{"unfinished": 5, "ready": 0, **holder})
    fleet.group(WAITING, **waiting)
    fleet.lease(HOLDER, 1, **lease)


def held_ending(fleet: Fleet, few: int, _: int) -> tuple[str, ...]:
    held(fleet, {}, {}, state=LeaseState.ENDING, for_group=HOLDER, ending_since=NOW - few)
    return "of g2 for g2", f"since {exact(few)}"


def held_starting(fleet: Fleet, few: int, _: int) -> tuple[str, ...]:
    held(fleet, {}, {}, progress=Progress.STARTING, taken_at=NOW - few)
    return "set up for g2", f"since {exact(few)}"


def held_moves(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    fleet.host(1, moved_at=(NOW - 60.0 * few,) * 6)
    held(fleet, {}, {"priority": -1}, affinity_until=NOW)
    return "6 times within an hour of 6", f"again in {exact(3600 - 60 * few)}"


def held_idle(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    threshold = 180 + 10 * many
    holder = {"teardown_seconds": float(threshold)}
    held(fleet, {"priority": -1}, holder, progress=Progress.ROOM, idle_since=NOW - few)
    return (f"for {exact(few)} of {exact(threshold)}",)


def held_affinity(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    waiting, holder = {"priority": many}, {"priority": few}
    held(fleet, waiting, holder, affinity_until=NOW + 60 * few)
    return f"for {exact(60 * few)}", f"priority {many} is above {few}"


def held_rank(fleet: Fleet, few: int, many: int) -> tuple[str, ...]:
    held(fleet, {"priority": few}, {"priority": many})
    return (f"priority {few} is not above {many}",)


SENTENCES: dict[str, Build] = {
    "ended": ended,
    "no_work": no_work,
    "max_managers": max_managers,
    "enough": enough,
    "no_role": no_role,
    "removed": removed,
    "not_named": not_named,
    "tags": tags,
    "misfit": misfit,
    "too_small": too_small,
    "no_contact": no_contact,
    "draining": draining,
    "busy": busy,
    "cleanup": cleanup,
    "unclean": unclean,
    "rank": rank,
    "held_ending": held_ending,
    "held_starting": held_starting,
    "held_moves": held_moves,
    "held_idle": held_idle,
    "held_affinity": held_affinity,
    "held_rank": held_rank,
    "setup_failed": failure(HostFailureKind.SETUP_FAILED, "{reason}", "retry-setup h1"),
    "quarantined": failure(HostFailureKind.QUARANTINED, "{reason}", "{again}", "with one task"),
    "unreachable": failure(HostFailureKind.UNREACHABLE, "{failures} offers within 10 s", "{again}"),
    "workers_not_started": failure(
        HostFailureKind.WORKERS_NOT_STARTED, "{failures} times", "{reason}", "{again}"
    ),
    "no_progress": failure(HostFailureKind.NO_PROGRESS, "{failures} times", "{reason}", "{again}"),
    "suspected": failure(HostFailureKind.SUSPECTED, "{reason}", "tried on other hosts"),
}


def test_the_table_has_every_code() -> None:
    # A lease of its own is in the way of no task group: it has the host.
    kinds = {f"held_{kind}" for kind in ObjectionKind} - {"held_own"}
    assert SENTENCES.keys() == {predicate.code for predicate in PREDICATES} | kinds | {"rank"}


@pytest.mark.parametrize("code", SENTENCES)
@given(numbers=st.sets(st.integers(1, 40), min_size=2, max_size=2))
@settings(max_examples=examples(8))
def test_the_sentence_of_each_code_has_value_and_threshold(code: str, numbers: set[int]) -> None:
    fleet = Fleet(1, Policy())
    few, many = sorted(numbers)
    words = SENTENCES[code](fleet, few, many)
    (chain, *_) = explain_group(fleet.snapshot, NOW, WAITING).chains
    (sentence,) = (step.sentence for step in chain.steps if step.code == code)
    assert [word for word in words if word not in sentence] == [], sentence


def test_a_host_of_no_contact_at_all_has_the_threshold_too() -> None:
    fleet = Fleet(1)
    fleet.host(1, in_contact=False, last_contact_at=None)
    fleet.group(WAITING, user_group=OTHERS)
    (chain,) = explain_group(fleet.snapshot, NOW, WAITING).chains
    assert chain.first_obstacle is not None
    assert chain.first_obstacle.sentence == (
        "has never been in contact; silence of 10 s is allowed"
    )


def test_groups_of_two_user_groups_are_compared_by_their_shares() -> None:
    fleet = Fleet(2)
    fleet.group(3, ready=0, unfinished=1)
    fleet.lease(3, 2)
    fleet.group(HOLDER, user_group=OTHERS)
    fleet.group(WAITING)
    chain = explain_group(fleet.snapshot, NOW, WAITING).chains[0]
    assert chain.first_obstacle is not None
    assert chain.first_obstacle.sentence.endswith("its user group has 0 leases, this one's 1")


def test_groups_of_equal_rank_are_compared_by_their_age() -> None:
    fleet = Fleet(1)
    fleet.group(HOLDER, created_at=0.0)
    fleet.group(WAITING, created_at=90.0)
    (chain,) = explain_group(fleet.snapshot, NOW, WAITING).chains
    assert chain.first_obstacle is not None
    assert chain.first_obstacle.sentence.endswith("all else is equal, and it is 90 s older")


def seconds(text: str) -> float:
    """The number of seconds that a sentence shows, as in ``3 min 20 s``."""
    units = {"s": 1.0, "min": 60.0, "h": 3600.0}
    words = text.split()
    return sum(
        float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True)
    )


SPAN = r"([\d.]+ (?:s|min|h)(?: [\d.]+ (?:s|min))*)"
BY_DURATION = re.compile(
    rf"has (\d+) of the (\d+) hosts that it can use; (\d+) tasks are (?:ready|unfinished), {SPAN} each,"
    rf" which is {SPAN} of work for a host with (\d+) workers?; each host must have {SPAN} of it"
    rf" \(setup {SPAN}, teardown {SPAN}, at least 60 s\)"
)


@given(
    ready=st.integers(30, 400),
    more=st.sampled_from([0, 0, 5_000]),
    task=st.sampled_from([0.125, 0.25, 1.5, 2.3, 0.004]),
    workers=st.integers(1, 8),
    setup=st.sampled_from([0.0, 12.5, 61.7, 300.0]),
    teardown=st.sampled_from([0.0, 2.25, 20.0]),
)
def test_the_useful_hosts_can_be_computed_from_what_the_sentence_shows(
    ready: int, more: int, task: float, workers: int, setup: float, teardown: float
) -> None:
    fleet = Fleet(1)
    measured = {"tasks_measured": 5, "task_seconds": task, "setup_seconds": setup}
    measured |= {"teardown_seconds": teardown, "more_ready": more > 0}
    fleet.group(WAITING, ready=ready, unfinished=ready + more, workers=workers, **measured)  # type: ignore[arg-type]
    group = fleet.snapshot.groups[WAITING]
    useful = useful_leases(group.work, workers, 0, fleet.snapshot.policy)
    sentence = held_of_useful(Moment(fleet.snapshot, NOW), group)
    found = BY_DURATION.search(f"has {sentence}")
    if found is None:
        assert useful == ceil(ready / (2 * workers)), sentence
        return
    count, shown, tasks, each, work, of, needed, prepared, cleaned = found.groups()
    assert (int(count), int(shown), int(tasks)) == (0, useful, ready + more)
    assert int(of) == workers
    assert seconds(work) == pytest.approx(int(tasks) * seconds(each) / workers, abs=0.51)
    assert seconds(needed) == pytest.approx(max(60, seconds(prepared) + seconds(cleaned)), abs=0.51)
    pays_for = seconds(work) / seconds(needed)
    assert useful in (max(1, int(pays_for - 0.02)), max(1, int(pays_for + 0.02)))


@given(value=st.floats(0, 20_000, allow_nan=False), threshold=st.floats(0, 20_000, allow_nan=False))
@example(value=1.4, threshold=1.5)
@example(value=199.7, threshold=200.2)
def test_what_is_less_is_shown_as_less(value: float, threshold: float) -> None:
    assume(abs(value - threshold) > 1e-4)
    shown = [seconds(text) for text in compared(value, threshold)]
    assert (shown[0] < shown[1]) == (value < threshold)
    assert shown == pytest.approx([value, threshold], abs=1, rel=0.01)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0, "0 s"),
        (0.0042, "0.004 s"),
        (1.5, "1.5 s"),
        (2.3, "2.3 s"),
        (9.999, "10 s"),
        (63.4821, "63.5 s"),
        (119.96, "2 min"),
        (150, "2 min 30 s"),
        (7199.6, "2 h"),
        (7322, "2 h 2 min 2 s"),
        (7200 + 59.6, "2 h 1 min"),
    ],
)
def test_a_span_is_shown_as_exactly_as_it_is_compared(span: float, text: str) -> None:
    assert exact(span) == text
