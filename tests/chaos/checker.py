"""Judges the facts of a campaign. Pure: no file, no process, no clock.

Each check gives a sentence for everything that should not be so; :func:`violations` runs them all.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from tests.chaos.facts import Execution, Facts, Kill
from tests.chaos.plan import PlannedTask, Victim
from tests.chaos.task import answer

OWN_FAILURES = ("exit_code", "handler_error")
"""Kinds of a failure that the task itself made, as planned."""
UNREPORTED_NS = 1_000_000_000
"""A task that ended so short before a kill may not have been reported, or journalled, by then."""
DYING_NS = 3_000_000_000
"""So long after a kill something below the victim may still begin before it is ended too."""

Check = Callable[[Facts], Iterable[str]]


def violations(facts: Facts) -> list[str]:
    """All that is wrong, in words; empty for a campaign that lost and doubled nothing."""
    return [f"{check.__name__}: {said}" for check in CHECKS for said in check(facts)]


def kills_fell_in_the_middle(facts: Facts) -> Iterator[str]:
    total = len(facts.plan.tasks)
    planned = [victim for kill in facts.plan.kills for victim in kill.victims]
    if [kill.victim for kill in facts.kills] != planned:
        yield f"{len(facts.kills)} kills instead of {len(planned)}"
    for kill in facts.kills:
        if not 0.1 * total <= kill.done_before <= kill.done_after <= 0.9 * total:
            yield f"{kill.victim}: {kill.done_before} to {kill.done_after} of {total} were done"
        if not kill.lease_live:
            yield f"{kill.victim}: no lease was live"
        if kill.victim is Victim.RELAY and not kill.unsent:
            yield f"{kill.victim}: it had nothing left to send"


def every_task_has_one_result(facts: Facts) -> Iterator[str]:
    found = Counter(result.task_id for result in facts.results)
    wanted = set(facts.submitted)
    if len(wanted) != len(facts.plan.tasks):
        yield f"{len(wanted)} ids for {len(facts.plan.tasks)} tasks"
    for task_id in sorted(wanted | set(found)):
        if task_id not in wanted:
            yield f"task {task_id} was never submitted"
        elif found[task_id] != 1:
            yield f"task {task_id} has {found[task_id]} results"
    if sorted(result.seq for result in facts.results) != list(range(1, len(facts.results) + 1)):
        yield "the results are not numbered 1, 2, 3 …"


def results_are_what_was_recorded(facts: Facts) -> Iterator[str]:
    """Content and attempt of each result belong to one execution that came to its end."""
    runs, planned = _by_task(facts), _planned(facts)
    for result in facts.results:
        ended = [run for run in runs[result.task_id] if run.ended is not None]
        answers = [
            answer(run.nonce, run.number, run.attempt)
            for run in ended
            if run.attempt == result.attempt
        ]
        task = planned.get(result.task_id)
        given = result.detail.get("stdout", "").split()
        if len(given) != 1 or given[0] not in answers:
            yield f"task {result.task_id}, attempt {result.attempt}: {given} is not in {answers}"
        elif task and task.succeeds and not task.command and result.detail["result"] != given[0]:
            yield f"task {result.task_id} returned {result.detail['result']!r}"


def every_task_ran(facts: Facts) -> Iterator[str]:
    """At least once, as the one that was submitted, in a prepared environment."""
    runs = _by_task(facts)
    for number, task_id in enumerate(facts.submitted):
        if not runs[task_id]:
            yield f"task {task_id} never ran"
        for run in runs[task_id]:
            if run.number != number:
                yield f"task {task_id} ran as number {run.number} instead of {number}"
            if not run.prepared:
                yield f"task {task_id}, attempt {run.attempt} ran without its environment"


def nothing_ran_twice_at_once(facts: Facts) -> Iterator[str]:
    for task_id, runs in _by_task(facts).items():
        for first, second in pairwise(runs):
            if first.ended is not None and second.started < first.ended:
                yield f"task {task_id}: attempt {second.attempt} began before {first.attempt} ended"


def nothing_ran_after_its_result(facts: Facts) -> Iterator[str]:
    runs = _by_task(facts)
    for result in facts.results:
        late = [run.attempt for run in runs[result.task_id] if run.attempt > result.attempt]
        if late:
            yield f"task {result.task_id} ran attempt {late} after the result of {result.attempt}"


def only_what_was_in_flight_ran_again(facts: Facts) -> Iterator[str]:
    """A repetition follows a failure that was planned, or a kill that can end what runs."""
    own = {(f.task_id, f.attempt) for f in facts.failures if f.kind in OWN_FAILURES}
    repeats = 0
    for task_id, runs in _by_task(facts).items():
        for first, second in pairwise(runs):
            if (task_id, first.attempt) in own:
                continue
            repeats += 1
            if not any(_explains(kill, first, second) for kill in facts.kills):
                yield f"task {task_id}: attempt {first.attempt} was repeated for no reason"
    most = sum(_most_repeats(kill.victim, facts.plan.workers) for kill in facts.kills)
    if repeats > most:
        yield f"{repeats} repetitions, at most {most} are explained by the kills"


def failures_are_as_planned(facts: Facts) -> Iterator[str]:
    """A failing task has used up its own attempts, no more and no less; the others succeeded."""
    own = Counter(f.task_id for f in facts.failures if f.kind in OWN_FAILURES)
    planned = _planned(facts)
    for result in facts.results:
        task = planned.get(result.task_id)
        if task is None:
            continue
        if result.state != ("succeeded" if task.succeeds else "failed"):
            yield f"task {result.task_id} is {result.state}, planned was {task}"
        count, wanted = own[result.task_id] + (result.kind in OWN_FAILURES), task.max_attempts
        wrong = count > task.failures if task.succeeds else count != wanted
        if wrong:
            yield f"task {result.task_id} failed {count} times by itself, planned was {task}"


def failures_by_kills_are_few(facts: Facts) -> Iterator[str]:
    foreign = [f for f in facts.failures if f.kind not in OWN_FAILURES]
    most = sum(_most_repeats(kill.victim, facts.plan.workers) for kill in facts.kills)
    if len(foreign) > most:
        yield f"{len(foreign)} attempts failed by kills, at most {most} can have"


def counters_are_counts(facts: Facts) -> Iterator[str]:
    if facts.counters != facts.counted:
        yield f"the counters say {facts.counters}, the rows {facts.counted}"
    if facts.counters["total"] != len(facts.plan.tasks):
        yield f"the counters say {facts.counters} of {len(facts.plan.tasks)} tasks"


def the_group_ended(facts: Facts) -> Iterator[str]:
    wanted = {
        "state": "complete",
        "result": "success" if all(t.succeeds for t in facts.plan.tasks) else "tasks_failed",
    }
    if facts.group != wanted:
        yield f"the group is {facts.group}, not {wanted}"


def hooks_ran_once_each(facts: Facts) -> Iterator[str]:
    """One setup for each preparation, each followed by its teardown; none that nobody knows of."""
    known = [kind for kind, _ in facts.hook_runs]
    if list(facts.hooks) != known or any(state != "succeeded" for _, state in facts.hook_runs):
        yield f"hooks ran as {facts.hooks}, known are {facts.hook_runs}"
    if not known or known != ["setup", "teardown"] * (len(known) // 2):
        yield f"hooks ran in the order {known}"


def nothing_is_left(facts: Facts) -> Iterator[str]:
    for place, found in facts.leftovers.items():
        if found:
            yield f"{place}: {', '.join(found)}"


CHECKS: tuple[Check, ...] = (
    kills_fell_in_the_middle,
    every_task_has_one_result,
    results_are_what_was_recorded,
    every_task_ran,
    nothing_ran_twice_at_once,
    nothing_ran_after_its_result,
    only_what_was_in_flight_ran_again,
    failures_are_as_planned,
    failures_by_kills_are_few,
    counters_are_counts,
    the_group_ended,
    hooks_ran_once_each,
    nothing_is_left,
)


def _by_task(facts: Facts) -> defaultdict[int, list[Execution]]:
    """Executions of each task in the order of their starts."""
    runs: defaultdict[int, list[Execution]] = defaultdict(list)
    for run in sorted(facts.executions, key=lambda run: run.started):
        runs[run.task_id].append(run)
    return runs


def _planned(facts: Facts) -> dict[int, PlannedTask]:
    return dict(zip(facts.submitted, facts.plan.tasks, strict=True))


def _explains(kill: Kill, first: Execution, second: Execution) -> bool:
    """Was ``first`` running, or just over and not yet reported, when the kill fell?"""
    in_flight = first.started <= kill.at + DYING_NS and (
        first.ended is None or first.ended >= kill.at - UNREPORTED_NS
    )
    return bool(_most_repeats(kill.victim, 1)) and in_flight and second.started >= kill.at


def _most_repeats(victim: Victim, workers: int) -> int:
    """How many executions one such kill may cost: what ran, and in an agent what it had not reported."""
    match victim:
        case Victim.WORKER | Victim.COMMAND:
            return 1
        case Victim.ZYGOTE:
            return workers
        case Victim.AGENT | Victim.SUPERVISOR:
            return 2 * workers
        case _:
            return 0
