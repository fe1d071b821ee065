"""The judge of the campaigns over runs turns red: one that is right, and what can be wrong with it."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from tests.chaos.runs.facts import Executed, RunCampaignFacts, RunFacts, StepFacts, executed
from tests.chaos.runs.judge import violations
from tests.chaos.runs.plan import FLAKY, PARTS, Moment, PlannedRun, planned_runs

PLAN = PlannedRun(0, False, {"split": [0] * PARTS, "flaky": [0] * FLAKY}, 0.0)
COUNTS = {"split": PARTS, "refine": PARTS, "flaky": FLAKY, "report": 0}
ORDER = ("prepare", "split", "refine", "flaky", "merge", "clean")
Change = Callable[[RunCampaignFacts], RunCampaignFacts]


def step(name: str, state: str) -> StepFacts:
    count = COUNTS.get(name, 1)
    results = dict.fromkeys(range(count), ("succeeded",))
    total = count or None
    return StepFacts(name, state, total, count, count, 0, 0, None, results)


def right() -> RunCampaignFacts:
    steps = {name: step(name, state) for name, state in PLAN.expected().items()}
    run = RunFacts(PLAN, UUID(int=0), "success", None, None, steps)
    executions = [
        Executed(0, name, index, 1, at * 10, at * 10 + 5)
        for at, name in enumerate(ORDER)
        for index in range(COUNTS.get(name, 1))
    ]
    return RunCampaignFacts((run,), 1, tuple(executions), {"leases": ()})


def of_step(name: str, **changes: object) -> Change:
    def change(facts: RunCampaignFacts) -> RunCampaignFacts:
        (run,) = facts.runs
        steps = {**run.steps, name: replace(run.steps[name], **changes)}  # type: ignore[arg-type]
        return replace(facts, runs=(replace(run, steps=steps),))

    return change


def of_run(**changes: object) -> Change:
    return lambda facts: replace(facts, runs=(replace(facts.runs[0], **changes),))  # type: ignore[arg-type]


def early(name: str) -> Change:
    def change(facts: RunCampaignFacts) -> RunCampaignFacts:
        moved = [replace(one, started=4) if one.step == name else one for one in facts.executions]
        return replace(facts, executions=tuple(moved))

    return change


WRONG: list[tuple[Change, str]] = [
    (lambda facts: replace(facts, rows=2), "every_run_has_ended_once"),
    (of_run(state="running"), "every_run_has_ended_once"),
    (of_step("merge", results={}), "every_task_has_one_result"),
    (of_step("merge", results={0: ("succeeded", "failed")}), "every_task_has_one_result"),
    (of_step("merge", results={0: ()}), "every_task_has_one_result"),
    (of_step("split", succeeded=19, failed=1), "counters_equal_rows"),
    (of_step("merge", state="failed"), "steps_end_as_their_tasks_say"),
    (of_run(state="failed"), "runs_end_as_their_steps_say"),
    (of_step("report", state="succeeded"), "nobody_but_the_plan_fails_a_task"),
    (of_run(stopped_by="error"), "nobody_but_the_plan_fails_a_task"),
    (of_step("clean", state="cancelled"), "a_run_cleans_up"),
    (early("refine"), "no_task_starts_early: run 0: refine 0 began before ('split', 0)"),
    (early("clean"), "no_task_starts_early: run 0: clean 0 began before ('merge', 0)"),
    (lambda facts: replace(facts, leftovers={"leases": ("one",)}), "nothing_is_left: 1 leases"),
]


def test_what_is_right_is_right() -> None:
    assert violations(right()) == []


@pytest.mark.parametrize(("change", "check"), WRONG)
def test_what_is_wrong_is_named_by_its_check(change: Change, check: str) -> None:
    assert any(said.startswith(check) for said in violations(change(right())))


def test_each_part_dies_at_each_moment() -> None:
    runs = planned_runs(1, 60)
    kills = {run.kill for run in runs if run.kill is not None}
    assert len(kills) == len({victim for victim, _ in kills}) * len(Moment) == 36
    assert all(run.cancelled for run in runs if run.kill and run.kill[1] is Moment.CANCEL)
    assert runs == planned_runs(1, 60)


def test_an_execution_that_was_killed_has_no_end() -> None:
    lines = ["S 1 split 0 1 10", "S 1 split 0 1 20", "E 1 split 0 1 25", "S 1 merge 0 1 30", "E 1"]
    first, second, last = executed("\n".join(lines))
    assert (first.ended, second.ended, last.ended) == (25, None, None)
