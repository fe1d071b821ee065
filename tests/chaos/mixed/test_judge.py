"""The judge of mixed campaigns turns red: one that is right, and everything that can be wrong with it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.facts import Execution, Failure, Result
from tests.chaos.mixed.facts import (
    Disturbance,
    GroupFacts,
    HookLine,
    Idle,
    MixedFacts,
    Revocation,
    Rows,
)
from tests.chaos.mixed.judge import CHECKS, violations
from tests.chaos.mixed.plan import (
    LARGE,
    MixedPlan,
    MixedTask,
    Moment,
    PlannedGroup,
    Trouble,
    Verb,
    mixed_plan,
)
from tests.chaos.plan import ALWAYS
from tests.chaos.task import answer

SECOND = 1_000_000_000
Change = Callable[[MixedFacts], MixedFacts]


def run(
    number: int, attempt: int, started: float, ended: float | None, host: str = "a"
) -> Execution:
    """Task ids are 100 + number; seconds."""
    end = None if ended is None else int(ended * SECOND)
    nonce = f"{number}-{attempt}"
    return Execution(nonce, number, 100 + number, attempt, True, int(started * SECOND), end, host)


def result(number: int, attempt: int, seq: int, **more: Any) -> Result:
    text = answer(f"{number}-{attempt}", number, attempt)
    detail = {"stdout": f"{text}\n", "result": text} | more.pop("detail", {})
    values = {"state": "succeeded", "kind": None} | more
    return Result(100 + number, seq, attempt=attempt, detail=detail, **values)


def hook(word: str, kind: str, at: float, host: str = "a") -> HookLine:
    return HookLine(word == "S", kind, host, int(at * SECOND))


def planned(number: int, verb: Verb, *tasks: MixedTask, delete: bool = False) -> PlannedGroup:
    return PlannedGroup(number, tasks, verb, Moment.RUNNING, 0.5, delete, 2, None, 0.1)


def counts(**more: int) -> dict[str, int]:
    return {"total": 2, "unfinished": 0, "succeeded": 0, "failed": 0, "cancelled": 0} | more


def goes_on() -> GroupFacts:
    """A command that a kill repeats; a handler that fails once and gives much."""
    large = MixedTask(1, command=False, seconds=0, failures=1, max_attempts=3, size=LARGE)
    given = answer("1-2", 1, 2) + "x" * LARGE
    counters = counts(succeeded=2)
    return GroupFacts(
        plan=planned(0, Verb.NONE, MixedTask(0, command=True, seconds=0), large),
        number=7,
        submitted=(100, 101),
        verb_at=None,
        refused=(),
        settled_at=60 * SECOND,
        rows=Rows(
            (result(0, 2, 1), result(1, 2, 2, detail={"result": given})),
            (Failure(101, 1, "handler_error"),),
            counters,
            counters,
            {"state": "complete", "result": "success"},
            (),
        ),
        deleted_at=None,
        executions=(run(0, 1, 9, None), run(0, 2, 20, 21), run(1, 1, 22, 23), run(1, 2, 24, 25)),
        hooks=(
            hook("S", "setup", 5),
            hook("E", "setup", 6),
            hook("S", "teardown", 50),
            hook("E", "teardown", 51),
        ),
    )


def cancelled() -> GroupFacts:
    """One task has ended, the other never ran; deleted."""
    tasks = (MixedTask(0, command=True, seconds=0), MixedTask(1, command=True, seconds=0))
    counters = counts(succeeded=1, cancelled=1)
    return GroupFacts(
        plan=planned(1, Verb.CANCEL, *tasks, delete=True),
        number=8,
        submitted=(100, 101),
        verb_at=105 * SECOND,
        refused=(),
        settled_at=120 * SECOND,
        rows=Rows(
            (result(0, 1, 1), result(1, 0, 2, state="cancelled", kind="cancelled")),
            (),
            counters,
            counters,
            {"state": "cancelled", "result": "cancelled"},
            (),
        ),
        deleted_at=121 * SECOND,
        executions=(run(0, 1, 103, 104),),
        hooks=(
            hook("S", "setup", 100),
            hook("E", "setup", 101),
            hook("S", "teardown", 106),
            hook("E", "teardown", 107),
        ),
        rows_left={"task": 0},
    )


def right() -> MixedFacts:
    return MixedFacts(
        plan=MixedPlan(0, (), ()),
        groups=(goes_on(), cancelled()),
        disturbances=(
            Disturbance(Trouble.AGENT, "a", 10 * SECOND, 12 * SECOND),
            Disturbance(Trouble.REVOKED, "b", 10 * SECOND, 18 * SECOND),
        ),
        revocations=(
            Revocation("b", 10 * SECOND, 13 * SECOND, 18 * SECOND, 78, b"MJ01x", b"MJ01x"),
        ),
        exits=(("b", 78),),
        idle=(Idle(7, "a", 70 * SECOND, 75 * SECOND),),
        histories={"task-group": 50},
        leftovers={"processes": ()},
    )


def with_group(index: int, **changes: Any) -> Change:
    def change(facts: MixedFacts) -> MixedFacts:
        groups = list(facts.groups)
        groups[index] = replace(groups[index], **changes)
        return replace(facts, groups=tuple(groups))

    return change


def with_rows(index: int, **changes: Any) -> Change:
    return lambda facts: with_group(index, rows=replace(facts.groups[index].rows, **changes))(facts)


def having(**changes: Any) -> Change:
    return lambda facts: replace(facts, **changes)


def more_runs(index: int, *runs: Execution) -> Change:
    return lambda facts: with_group(index, executions=facts.groups[index].executions + runs)(facts)


def with_hooks(index: int, *lines: HookLine) -> Change:
    return with_group(index, hooks=lines)


def revoked(**changes: Any) -> Change:
    return lambda facts: replace(facts, revocations=(replace(facts.revocations[0], **changes),))


def both(first: Change, second: Change) -> Change:
    return lambda facts: second(first(facts))


FULL = Disturbance(Trouble.FULL_PIDS, "a", 9 * SECOND, 14 * SECOND)
OK = result(0, 2, 1)
WRONG: dict[str, tuple[str, Change]] = {
    "a lost result": ("every_task_has_one_result", with_rows(0, results=(OK,))),
    "a doubled result": ("every_task_has_one_result", with_rows(0, results=(OK, OK))),
    "a result of another task": (
        "every_task_has_one_result",
        with_rows(0, results=(replace(OK, task_id=9),)),
    ),
    "a result of the dead attempt": (
        "results_agree_with_effects",
        with_rows(0, results=(replace(OK, attempt=1),)),
    ),
    "a damaged large result": (
        "results_agree_with_effects",
        with_rows(0, results=(result(1, 2, 2),)),
    ),
    "a failure that was not planned": (
        "failures_are_explained",
        with_rows(0, results=(replace(OK, state="failed", kind="exit_code"),)),
    ),
    "a failure too many": (
        "failures_are_explained",
        with_rows(0, failures=tuple(Failure(101, n, "handler_error") for n in (1, 2))),
    ),
    "a small result that was refused": (
        "failures_are_explained",
        with_rows(0, results=(replace(OK, state="failed", kind="result_refused"),)),
    ),
    "a command not started, also where there were no processes": (
        "failures_are_explained",
        both(
            with_rows(0, results=(replace(OK, state="failed", kind="not_started"),)),
            lambda facts: replace(facts, disturbances=(*facts.disturbances, FULL)),
        ),
    ),
    "an attempt that did not start": (
        "every_attempt_started",
        with_rows(0, failures=(Failure(101, 1, "handler_error"), Failure(100, 1, "not_started"))),
    ),
    "a task that never ran and did not start": (
        "every_task_ran_prepared",
        both(
            with_rows(0, results=(replace(OK, state="failed", kind="not_started"),)),
            with_group(0, executions=goes_on().executions[2:]),
        ),
    ),
    "a repetition on a host at peace": ("repetitions_are_explained", having(disturbances=())),
    "two runs at once": (
        "nothing_ran_twice_at_once",
        with_group(0, executions=(run(0, 1, 20, 22), run(0, 2, 21, 23))),
    ),
    "a task that never ran": ("every_task_ran_prepared", with_group(0, executions=())),
    "a task that ran as another": (
        "every_task_ran_prepared",
        more_runs(0, replace(run(0, 3, 30, 31), number=1)),
    ),
    "a run without environment": (
        "every_task_ran_prepared",
        more_runs(0, replace(run(0, 3, 30, 31), prepared=False)),
    ),
    "a run after the result": ("nothing_starts_after_its_end", more_runs(0, run(0, 3, 30, 31))),
    "a run after the cancel": ("nothing_starts_after_its_end", more_runs(1, run(1, 1, 115, 116))),
    "a wrong counter": ("counters_are_counts", with_rows(0, counters=counts(succeeded=1))),
    "an unfinished task": (
        "counters_are_counts",
        with_rows(0, counters=counts(unfinished=1), counted=counts(unfinished=1)),
    ),
    "a group that is open": (
        "groups_ended_as_they_should",
        with_rows(0, state={"state": "open", "result": None}),
    ),
    "a cancel forgotten": (
        "groups_ended_as_they_should",
        with_rows(1, state={"state": "cancelled", "result": "success"}),
    ),
    "a debt without a reason": (
        "groups_ended_as_they_should",
        with_rows(1, state={"state": "cancelled", "result": "teardown_degraded"}),
    ),
    "a delete during a teardown": (
        "groups_ended_as_they_should",
        with_group(0, plan=replace(goes_on().plan, verb=Verb.REFUSED), refused=("accepted",)),
    ),
    "a delete forgotten": ("deleted_groups_left_nothing", with_group(1, deleted_at=None)),
    "a row left": ("deleted_groups_left_nothing", with_group(1, rows_left={"task": 1})),
    "a host without work": (
        "no_host_waits_beside_work",
        having(idle=(Idle(7, "a", 70 * SECOND, 95 * SECOND),)),
    ),
    "a revoked agent that goes on": ("a_revoked_host_keeps_its_journal", revoked(status=None)),
    "a journal lost": ("a_revoked_host_keeps_its_journal", revoked(journal_after=b"")),
    "a journal that nobody delivered": (
        "a_revoked_host_keeps_its_journal",
        with_group(0, executions=(run(0, 1, 11, 11.5, "b"), run(0, 2, 20, 21, "b"))),
    ),
    "an agent that ended for good": ("agents_end_only_when_they_must", having(revocations=())),
    "an agent that ended": ("agents_end_only_when_they_must", having(exits=(("a", 1),))),
    "a long history": ("histories_are_bounded", having(histories={"x": 40_000})),
    "a process left": ("nothing_is_left", having(leftovers={"processes": ("4711",)})),
    "no teardown": ("hooks_are_paired", with_hooks(0, hook("S", "setup", 5))),
    "a second teardown": (
        "hooks_are_paired",
        lambda facts: with_hooks(0, *facts.groups[0].hooks, hook("S", "teardown", 55))(facts),
    ),
    "a second setup": (
        "hooks_are_paired",
        with_hooks(0, hook("S", "setup", 30), hook("S", "setup", 31)),
    ),
    "a setup on a dirty host": (
        "no_setup_begins_on_a_dirty_host",
        with_hooks(0, hook("S", "setup", 5), hook("E", "setup", 6)),
    ),
    "a setup beside a teardown": (
        "no_setup_begins_on_a_dirty_host",
        with_hooks(0, hook("S", "setup", 5), hook("S", "teardown", 99)),
    ),
    "a failed hook on a host at peace": (
        "failed_hooks_had_a_reason",
        with_rows(0, failed_hooks=(("setup", "a", 40 * SECOND),)),
    ),
}


def test_a_mixed_that_is_right_is_accepted() -> None:
    assert violations(right()) == []


@pytest.mark.parametrize(("check", "change"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_by_its_check(check: str, change: Change) -> None:
    assert check in {said.partition(":")[0] for said in violations(change(right()))}


def test_a_failure_on_a_suspected_host_is_not_the_last() -> None:
    """Five tasks fail in a row on one host, so one of them is tried once more on the other (C-33)."""
    tasks = [MixedTask(n, command=True, seconds=0, failures=ALWAYS) for n in range(5)]
    runs = [run(n, 1, 20 + n, 20.5 + n) for n in range(5)]
    failed = {"state": "failed", "kind": "exit_code"}
    counters = counts(total=5, failed=5)
    group = replace(
        goes_on(),
        plan=planned(0, Verb.NONE, *tasks),
        submitted=tuple(range(100, 105)),
        executions=(*runs, run(4, 2, 30, 31, "b")),
        rows=Rows(
            (*(result(n, 1, n + 1, **failed) for n in range(4)), result(4, 2, 5, **failed)),
            (Failure(104, 1, "exit_code"),),
            counters,
            counters,
            {"state": "complete", "result": "tasks_failed"},
            (),
        ),
    )
    assert violations(replace(right(), groups=(group,))) == []
    alone = replace(group, executions=(runs[4], group.executions[-1]))
    named = violations(replace(right(), groups=(alone,)))
    assert any("failed 2 times by itself" in said for said in named)


def test_each_check_has_been_seen_red() -> None:
    assert {check for check, _ in WRONG.values()} == {check.__name__ for check in CHECKS}


def test_one_seed_makes_one_mixed_with_every_verb_moment_and_trouble() -> None:
    plan = mixed_plan(3, 20_000)
    assert plan == mixed_plan(3, 20_000) != mixed_plan(4, 20_000)
    assert plan.tasks == 20_000
    assert {group.verb for group in plan.groups} == set(Verb)
    assert {group.moment for group in plan.groups} == set(Moment)
    assert {one.trouble for one in plan.troubles} == set(Trouble)
    assert {one.host for one in plan.troubles} == set(range(plan.hosts))
    moments = [one.at for one in plan.troubles]
    assert moments == sorted(moments)


def test_tasks_are_of_every_kind() -> None:
    tasks = [task for group in mixed_plan(3, 2_000).groups for task in group.tasks]
    assert {task.failures for task in tasks} == {0, 1, ALWAYS}
    assert {task.command for task in tasks} == {False, True}
    assert {task.size for task in tasks} >= {0, LARGE}
