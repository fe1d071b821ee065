"""The checker of the campaigns turns red: one that is right, and everything that can be wrong with it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import CHECKS, violations
from tests.chaos.facts import Execution, Facts, Failure, Kill, Result
from tests.chaos.plan import ALWAYS, Plan, PlannedKill, PlannedTask, Topology, Victim, plan
from tests.chaos.task import answer

SECOND = 1_000_000_000
Change = Callable[[Facts], Facts]


def run(number: int, attempt: int, started: float, ended: float | None) -> Execution:
    """Task ids are 100 + number; seconds."""
    end = None if ended is None else int(ended * SECOND)
    nonce = f"{number}-{attempt}"
    return Execution(nonce, number, 100 + number, attempt, True, int(started * SECOND), end)


def result(number: int, attempt: int, state: str = "succeeded", kind: str | None = None) -> Result:
    text = answer(f"{number}-{attempt}", number, attempt)
    detail: dict[str, Any] = {"stdout": f"{text}\n", "result": text}
    return Result(100 + number, number + 1, state, attempt, kind, detail)


def right() -> Facts:
    """Five tasks: a handler; a command that a kill repeats; one that fails once, twice, for good."""
    tasks = (
        PlannedTask(0, command=False, seconds=0.1),
        PlannedTask(1, command=True, seconds=0.1),
        PlannedTask(2, command=True, seconds=0.1, failures=1, max_attempts=3),
        PlannedTask(3, command=True, seconds=0.1, failures=ALWAYS, max_attempts=2),
        PlannedTask(4, command=False, seconds=0.1, failures=ALWAYS),
    )
    kills = (PlannedKill((Victim.AGENT,), 0.4),)
    counters = {"total": 5, "unfinished": 0, "succeeded": 3, "failed": 2, "cancelled": 0}
    return Facts(
        plan=Plan(0, tasks, kills, workers=2),
        submitted=(100, 101, 102, 103, 104),
        executions=(
            run(0, 1, 1, 2),
            run(1, 1, 9, None),
            run(1, 2, 15, 16),
            run(2, 1, 2, 3),
            run(2, 2, 4, 5),
            run(3, 1, 15, 16),
            run(3, 2, 17, 18),
            run(4, 1, 17, 18),
        ),
        kills=(Kill(Victim.AGENT, 10 * SECOND, 2, 2, lease_live=True),),
        results=(
            result(0, 1),
            result(1, 2),
            result(2, 2),
            result(3, 2, "failed", "exit_code"),
            result(4, 1, "failed", "handler_error"),
        ),
        failures=(Failure(102, 1, "exit_code"), Failure(103, 1, "exit_code")),
        counters=counters,
        counted=counters,
        group={"state": "complete", "result": "tasks_failed"},
        hooks=("setup", "teardown"),
        hook_runs=(("setup", "succeeded"), ("teardown", "succeeded")),
        leftovers={"processes": ()},
    )


def with_result(index: int, **changes: Any) -> Change:
    def change(facts: Facts) -> Facts:
        results = list(facts.results)
        results[index] = replace(results[index], **changes)
        return replace(facts, results=tuple(results))

    return change


def with_run(index: int, **changes: Any) -> Change:
    def change(facts: Facts) -> Facts:
        runs = list(facts.executions)
        runs[index] = replace(runs[index], **changes)
        return replace(facts, executions=tuple(runs))

    return change


def with_kill(**changes: Any) -> Change:
    return lambda facts: replace(facts, kills=(replace(facts.kills[0], **changes),))


def having(**changes: Any) -> Change:
    return lambda facts: replace(facts, **changes)


def more_runs(*runs: Execution) -> Change:
    return lambda facts: replace(facts, executions=facts.executions + runs)


def more_failures(*failures: Failure) -> Change:
    return lambda facts: replace(facts, failures=facts.failures + failures)


WRONG: dict[str, tuple[str, Change]] = {
    "a kill too early": ("kills_fell_in_the_middle", with_kill(done_before=0)),
    "a kill too late": ("kills_fell_in_the_middle", with_kill(done_after=5)),
    "a kill without a lease": ("kills_fell_in_the_middle", with_kill(lease_live=False)),
    "a relay that had sent everything": (
        "kills_fell_in_the_middle",
        with_kill(victim=Victim.RELAY, unsent=0),
    ),
    "a kill left out": ("kills_fell_in_the_middle", having(kills=())),
    "a lost result": (
        "every_task_has_one_result",
        lambda facts: replace(facts, results=facts.results[1:]),
    ),
    "a doubled result": (
        "every_task_has_one_result",
        lambda facts: replace(facts, results=(*facts.results, facts.results[0])),
    ),
    "a result of nobody": ("every_task_has_one_result", with_result(0, task_id=999)),
    "an id given twice": ("every_task_has_one_result", having(submitted=(100, 101, 102, 103, 103))),
    "a gap in the results": ("every_task_has_one_result", with_result(4, seq=9)),
    "content of another task": (
        "results_are_what_was_recorded",
        with_result(1, detail=result(2, 2).detail),
    ),
    "content of the dead attempt": ("results_are_what_was_recorded", with_result(1, attempt=1)),
    "no content": ("results_are_what_was_recorded", with_result(1, detail={"stdout": ""})),
    "another returned value": (
        "results_are_what_was_recorded",
        with_result(0, detail={**result(0, 1).detail, "result": "other"}),
    ),
    "a task that never ran": (
        "every_task_ran",
        lambda facts: replace(facts, executions=facts.executions[1:]),
    ),
    "a task that ran as another": ("every_task_ran", with_run(0, number=3)),
    "a run without environment": ("every_task_ran", with_run(0, prepared=False)),
    "two runs at once": ("nothing_ran_twice_at_once", with_run(3, ended=5 * SECOND)),
    "a run after the result": ("nothing_ran_after_its_result", more_runs(run(0, 2, 10, 11))),
    "a run again for no reason": (
        "only_what_was_in_flight_ran_again",
        more_runs(run(0, 2, 10, 11)),
    ),
    "a run again by a kill that ends no task": (
        "only_what_was_in_flight_ran_again",
        with_kill(victim=Victim.POSTGRES),
    ),
    "a run again before the kill": ("only_what_was_in_flight_ran_again", with_kill(at=16 * SECOND)),
    "more runs again than workers": (
        "only_what_was_in_flight_ran_again",
        more_runs(*(run(0, 10 + n, 9 + n / 10, None) for n in range(5)), run(0, 20, 15, 16)),
    ),
    "a success that should fail": ("failures_are_as_planned", with_result(4, state="succeeded")),
    "a failure that should succeed": ("failures_are_as_planned", with_result(0, state="failed")),
    "a failure without its retry": ("failures_are_as_planned", having(failures=())),
    "a failure too many": (
        "failures_are_as_planned",
        more_failures(Failure(104, 2, "handler_error")),
    ),
    "a failure that was not planned": (
        "failures_are_as_planned",
        more_failures(Failure(100, 2, "handler_error")),
    ),
    "failures by more than the kills": (
        "failures_by_kills_are_few",
        more_failures(*(Failure(101, n, "worker_lost") for n in range(5))),
    ),
    "a wrong counter": (
        "counters_are_counts",
        lambda facts: replace(facts, counters={**facts.counters, "succeeded": 2}),
    ),
    "tasks nobody counted": (
        "counters_are_counts",
        lambda facts: replace(
            facts, counters={**facts.counters, "total": 4}, counted={**facts.counted, "total": 4}
        ),
    ),
    "a group still open": ("the_group_ended", having(group={"state": "closed", "result": None})),
    "a failure forgotten": (
        "the_group_ended",
        having(group={"state": "complete", "result": "success"}),
    ),
    "a second setup": ("hooks_ran_once_each", having(hooks=("setup", "setup", "teardown"))),
    "a failed teardown": (
        "hooks_ran_once_each",
        having(hook_runs=(("setup", "succeeded"), ("teardown", "failed"))),
    ),
    "no teardown": (
        "hooks_ran_once_each",
        having(hooks=("setup",), hook_runs=(("setup", "succeeded"),)),
    ),
    "no hook at all": ("hooks_ran_once_each", having(hooks=(), hook_runs=())),
    "a process left": ("nothing_is_left", having(leftovers={"processes": ("4711",)})),
}


def test_a_campaign_that_is_right_is_accepted() -> None:
    assert violations(right()) == []


@pytest.mark.parametrize(("check", "change"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_by_its_check(check: str, change: Change) -> None:
    named = {said.partition(":")[0] for said in violations(change(right()))}
    assert check in named


def test_each_check_has_been_seen_red() -> None:
    assert {check for check, _ in WRONG.values()} == {check.__name__ for check in CHECKS}


def test_one_seed_makes_one_campaign() -> None:
    assert plan(3, 200, pairs=True) == plan(3, 200, pairs=True)
    assert plan(3, 200, pairs=True) != plan(4, 200, pairs=True)


@pytest.mark.parametrize("topology", Topology)
@pytest.mark.parametrize("pairs", [False, True])
def test_everything_dies_in_the_middle(pairs: bool, topology: Topology) -> None:
    kills = plan(3, 200, pairs=pairs, topology=topology).kills
    died = [victim for kill in kills for victim in kill.victims]
    mortals = topology.victims if pairs else topology.own_victims
    assert sorted(died) == sorted(mortals * (2 if pairs else 1))
    moments = [kill.at for kill in kills]
    assert moments == sorted(moments)
    assert 0.1 < moments[0] <= moments[-1] < 0.9


def test_every_part_dies_alone_in_some_topology() -> None:
    assert {v for topology in Topology for v in topology.own_victims} == set(Victim)
    assert set(Topology.PARTS.victims) == set(Victim)
