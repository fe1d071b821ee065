"""Judges the facts of a campaign over runs. Pure: no file, no process, no clock.

Each check gives a sentence for everything that should not be so; :func:`violations` runs them all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.chaos.runs.facts import RunCampaignFacts, RunFacts, StepFacts

Check = Callable[[RunCampaignFacts], Iterable[str]]
ENDED = {"success", "failed", "cancelled"}
PARENTS: Mapping[str, tuple[str, ...]] = {
    "prepare": (),
    "split": ("prepare",),
    "flaky": ("prepare",),
    "merge": ("refine",),
    "report": ("flaky",),
    "clean": ("merge", "report", "flaky"),
}
"""Steps that have ended before one starts; ``refine`` follows ``split`` one by one."""


def violations(facts: RunCampaignFacts) -> list[str]:
    """All that is wrong, in words."""
    return [f"{check.__name__}: {said}" for check in CHECKS for said in check(facts)]


def every_run_has_ended_once(facts: RunCampaignFacts) -> Iterator[str]:
    if facts.rows != len(facts.runs):
        yield f"there are {facts.rows} runs, and {len(facts.runs)} were started"
    for run in facts.runs:
        if run.state not in ENDED:
            yield f"run {run.plan.number} is {run.state}"


def every_task_has_one_result(facts: RunCampaignFacts) -> Iterator[str]:
    for run, step in _steps(facts):
        if sorted(step.results) != list(range(step.created)):
            yield f"run {run.plan.number}: {step.name} has {len(step.results)} of {step.created} tasks"
        for index, states in step.results.items():
            if len(states) != 1:
                yield f"run {run.plan.number}: {step.name} {index} has the results {states}"


def counters_equal_rows(facts: RunCampaignFacts) -> Iterator[str]:
    for run, step in _steps(facts):
        rows = Counter(state for states in step.results.values() for state in states)
        counted = (rows["succeeded"], rows["failed"], rows["cancelled"])
        if step.counts != counted:
            yield f"run {run.plan.number}: {step.name} counts {step.counts}, its rows are {counted}"


def steps_end_as_their_tasks_say(facts: RunCampaignFacts) -> Iterator[str]:
    for run, step in _steps(facts):
        if step.created and step.state != (wanted := _state_of(step)):
            yield f"run {run.plan.number}: {step.name} is {step.state}, its tasks say {wanted}"


def runs_end_as_their_steps_say(facts: RunCampaignFacts) -> Iterator[str]:
    for run in facts.runs:
        states = {step.state for step in run.steps.values()}
        wanted = "failed" if "failed" in states else "success"
        if run.stopped_by == "cancel" and "cancelled" in states:
            wanted = "cancelled"
        if run.stopped_by not in {None, "cancel"}:
            wanted = "failed"
        if run.state != wanted:
            yield f"run {run.plan.number} is {run.state}, its steps say {wanted}"


def nobody_but_the_plan_fails_a_task(facts: RunCampaignFacts) -> Iterator[str]:
    """A run that no one cancelled has come to what its tasks do by themselves, whatever was killed."""
    for run in facts.runs:
        if run.stopped_by is not None and not run.plan.cancelled:
            yield f"run {run.plan.number} was stopped by {run.stopped_by}: {run.reason}"
        states = {name: step.state for name, step in run.steps.items()}
        if run.stopped_by is None and states != run.plan.expected():
            found = {
                name: (states[name], run.steps[name].kinds)
                for name, wanted in run.plan.expected().items()
                if states[name] != wanted
            }
            yield f"run {run.plan.number}: {found}"


def a_run_cleans_up(facts: RunCampaignFacts) -> Iterator[str]:
    for run in facts.runs:
        if run.steps["clean"].state != "succeeded":
            yield f"run {run.plan.number}: clean is {run.steps['clean'].state}"


def no_task_starts_early(facts: RunCampaignFacts) -> Iterator[str]:
    begun: dict[tuple[int, str, int], int] = {}
    ended: dict[tuple[int, str, int], int] = {}
    for one in facts.executions:
        key = (one.run, one.step, one.index)
        begun[key] = min(one.started, begun.get(key, one.started))
        if one.ended is not None:
            ended[key] = min(one.ended, ended.get(key, one.ended))
    runs = {run.plan.number: run for run in facts.runs}
    for (number, name, index), at in begun.items():
        for before in _before(runs[number], name, index):
            if ended.get(before, at + 1) > at:
                yield f"run {number}: {name} {index} began before {before[1:]} had ended"


def nothing_is_left(facts: RunCampaignFacts) -> Iterator[str]:
    for place, rows in facts.leftovers.items():
        if rows:
            yield f"{len(rows)} {place}, as {rows[0]}"


def _before(run: RunFacts, name: str, index: int) -> Iterator[tuple[int, str, int]]:
    """The tasks that have succeeded or failed by themselves before this one begins."""
    if name == "refine":
        yield (run.plan.number, "split", index)
    for parent in PARENTS.get(name, ()):
        for at, states in run.steps[parent].results.items():
            if states == ("succeeded",):
                yield (run.plan.number, parent, at)


def _state_of(step: StepFacts) -> str:
    if step.succeeded == step.total:
        return "succeeded"
    incomplete = step.created != step.total
    if step.stopped_by == "cancel" and (step.cancelled or incomplete):
        return "cancelled"
    return "failed"


def _steps(facts: RunCampaignFacts) -> Iterator[tuple[RunFacts, StepFacts]]:
    for run in facts.runs:
        for step in run.steps.values():
            yield run, step


CHECKS: tuple[Check, ...] = (
    every_run_has_ended_once,
    every_task_has_one_result,
    counters_equal_rows,
    steps_end_as_their_tasks_say,
    runs_end_as_their_steps_say,
    nobody_but_the_plan_fails_a_task,
    a_run_cleans_up,
    no_task_starts_early,
    nothing_is_left,
)
