"""Judges the facts of a campaign. Pure: no file, no process, no clock.

Each check gives a sentence for everything that should not be so; :func:`violations` runs them all. What is
promised is in docs/protocol.md and docs/when-things-die.md. Hooks are judged in :mod:`.hook_judge`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from tests.chaos.checker import OWN_FAILURES
from tests.chaos.facts import Execution, Failure, Result
from tests.chaos.mixed.explained import (
    SECOND,
    by_task,
    disturbed,
    planned_of,
    refused_large,
    servers_were_down,
    was_doubted,
    without_processes,
)
from tests.chaos.mixed.facts import GroupFacts, MixedFacts, Revocation
from tests.chaos.mixed.hook_judge import HOOK_CHECKS
from tests.chaos.mixed.plan import LARGE, MixedTask, Verb
from tests.chaos.task import answer

STARTS_AFTER_CANCEL_NS = 8 * SECOND
"""Of hosts in contact: a renewal, and a machine under load."""
IDLE_LIMIT_NS = 10 * SECOND
LOADED_NS = 10 * SECOND
"""More than the limit, on a machine that runs all of this."""
AFTER_OUTAGE_NS = 30 * SECOND
"""Servers that were down need so long to look and signal again."""
MOST_EVENTS = 10_000
"""Of one run of a workflow; the server ends one at 51,200."""
REFUSED_STATUS = 78
SOON_BACK_NS = 18 * SECOND
EXPECTED_REFUSALS = {"conflict", "invalid_transition"}

Check = Callable[[MixedFacts], Iterable[str]]


def violations(facts: MixedFacts) -> list[str]:
    """All that is wrong, in words; empty for a campaign that lost, doubled and forgot nothing."""
    return [f"{check.__name__}: {said}" for check in CHECKS for said in check(facts)]


def every_task_has_one_result(facts: MixedFacts) -> Iterator[str]:
    for group in facts.groups:
        found = Counter(result.task_id for result in group.rows.results)
        if len(set(group.submitted)) != len(group.plan.tasks):
            yield f"{group.name}: {len(set(group.submitted))} ids of {len(group.plan.tasks)} tasks"
        for task_id in set(group.submitted) | set(found):
            if found[task_id] != 1 or task_id not in group.submitted:
                yield f"{group.name}: task {task_id} has {found[task_id]} results"
        numbers = sorted(result.seq for result in group.rows.results)
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{group.name}: the results are not numbered 1, 2, 3 …"


def results_agree_with_effects(facts: MixedFacts) -> Iterator[str]:
    """What succeeded, or failed by itself, is what an execution of that attempt has recorded."""
    for group in facts.groups:
        runs = by_task(group)
        for task, result in _known(group):
            if result.state != "succeeded" and result.kind not in OWN_FAILURES:
                continue
            wanted = {
                answer(run.nonce, run.number, run.attempt)
                for run in runs[result.task_id]
                if run.ended is not None and run.attempt == result.attempt
            }
            if _given(task, result) not in wanted:
                yield f"{group.name}: task {result.task_id}, attempt {result.attempt}: not as recorded"


def _known(group: GroupFacts) -> list[tuple[MixedTask, Result]]:
    planned = planned_of(group)
    return [(planned[r.task_id], r) for r in group.rows.results if r.task_id in planned]


def _given(task: MixedTask, result: Result) -> str:
    if not task.command and result.state == "succeeded":
        value = str(result.detail["result"])
        return value[:64] if value[64:] == "x" * task.size else "damaged"
    words = str(result.detail.get("stdout", "")).split()
    return words[-1] if words else "nothing"


def failures_are_explained(facts: MixedFacts) -> Iterator[str]:
    """Of groups that go on: as planned, but for what the campaign made impossible."""
    for group in facts.groups:
        if not group.plan.goes_on:
            continue
        own = Counter(f.task_id for f in group.rows.failures if f.kind in OWN_FAILURES)
        for task, result in _known(group):
            if result.kind is not None and result.kind not in OWN_FAILURES:
                if not _made_impossible(facts, task, result):
                    yield f"{group.name}: task {result.task_id} failed as {result.kind}: {result.detail}"
                continue
            if (result.state == "succeeded") != task.succeeds:
                yield f"{group.name}: task {result.task_id} is {result.state}, planned was {task}"
            failed = own[result.task_id] + (result.kind in OWN_FAILURES)
            most = task.failures if task.succeeds else task.max_attempts
            doubted = was_doubted(group, result.task_id) or without_processes(facts)
            if failed > most + doubted:
                yield f"{group.name}: task {result.task_id} failed {failed} times by itself"


def every_attempt_started(facts: MixedFacts) -> Iterator[str]:
    """A command for which there is no process goes back: that is no failed attempt."""
    for group in facts.groups:
        ended: list[Failure | Result] = [*group.rows.failures, *group.rows.results]
        for one in ended:
            if one.kind == "not_started":
                yield f"{group.name}: attempt {one.attempt} of task {one.task_id} did not start"


def _made_impossible(facts: MixedFacts, task: MixedTask, result: Result) -> bool:
    return result.kind == "result_refused" and task.size == LARGE and refused_large(facts)


def repetitions_are_explained(facts: MixedFacts) -> Iterator[str]:
    """An attempt follows a failure that was planned, or something that happened to its host."""
    for group in facts.groups:
        failed = {(f.task_id, f.attempt) for f in group.rows.failures if f.kind in OWN_FAILURES}
        for task_id, runs in by_task(group).items():
            for first, second in pairwise(runs):
                if (task_id, first.attempt) in failed:
                    continue
                until = second.started
                if not disturbed(facts, first.host, first.started, until):
                    yield f"{group.name}: task {task_id} was repeated for no reason: {first}, {second}"


def nothing_ran_twice_at_once(facts: MixedFacts) -> Iterator[str]:
    """But for a host that was silent for so long that its tasks were given to others."""
    for group in facts.groups:
        for task_id, runs in by_task(group).items():
            for first, second in pairwise(runs):
                overlaps = first.ended is not None and second.started < first.ended
                silent = first.host != second.host and disturbed(
                    facts, first.host, first.started, second.started
                )
                if overlaps and not silent:
                    yield f"{group.name}: task {task_id} ran twice at once: {first}, {second}"


def every_task_ran_prepared(facts: MixedFacts) -> Iterator[str]:
    for group in facts.groups:
        runs = by_task(group)
        for number, task_id in enumerate(group.submitted):
            if group.plan.goes_on and not runs[task_id]:
                yield f"{group.name}: task {task_id} never ran"
            for run in runs[task_id]:
                if run.number != number:
                    yield f"{group.name}: task {task_id} ran as {run.number}"
                if not run.prepared:
                    yield f"{group.name}: task {task_id} ran without its environment: {run}"


def nothing_starts_after_its_end(facts: MixedFacts) -> Iterator[str]:
    """No execution begins after the verb that ends its group, nor after its result."""
    for group in facts.groups:
        results = {result.task_id: result for result in group.rows.results}
        for run in group.executions:
            result = results.get(run.task_id)
            if result is not None and run.attempt > result.attempt:
                yield f"{group.name}: {run} began after the result of {result.attempt}"
            if group.plan.goes_on or group.verb_at is None:
                continue
            late = run.started > group.verb_at + STARTS_AFTER_CANCEL_NS
            if late and not _unreached(facts, run, group.verb_at):
                yield f"{group.name}: {run} began after its {group.plan.verb} at {group.verb_at}"


def _unreached(facts: MixedFacts, run: Execution, since: int) -> bool:
    return disturbed(facts, run.host, since, run.started) or servers_were_down(
        facts, since, run.started
    )


def counters_are_counts(facts: MixedFacts) -> Iterator[str]:
    for group in facts.groups:
        rows = group.rows
        if rows.counters != rows.counted:
            yield f"{group.name}: the counters say {rows.counters}, the rows {rows.counted}"
        if rows.counters["total"] != len(group.plan.tasks) or rows.counters["unfinished"]:
            yield f"{group.name}: the counters say {rows.counters}"


def groups_ended_as_they_should(facts: MixedFacts) -> Iterator[str]:
    for group in facts.groups:
        verb, rows = group.plan.verb, group.rows
        cancelled = verb in (Verb.CANCEL, Verb.CANCEL_SOFTLY) and rows.state["state"] != "complete"
        state, result = rows.state["state"], rows.state["result"]
        wanted = {"cancelled"} if cancelled else {_own_result(group)}
        if verb is Verb.COMPLETE and rows.counters["cancelled"]:
            wanted |= {"cancelled", "tasks_failed"}
        if state != ("cancelled" if cancelled else "complete"):
            yield f"{group.name}: is {rows.state}"
        if result not in wanted | {"teardown_degraded"}:
            yield f"{group.name}: ended as {result}, not as {wanted}"
        if result == "teardown_degraded" and not _may_owe(facts, group):
            yield f"{group.name}: ended as {result} for no reason"
        if group.plan.goes_on and rows.counters["cancelled"]:
            yield f"{group.name}: {rows.counters['cancelled']} tasks were cancelled by nobody"
        if verb is Verb.REFUSED and not set(group.refused) <= EXPECTED_REFUSALS:
            yield f"{group.name}: verbs during its teardown were answered {group.refused}"


def _own_result(group: GroupFacts) -> str:
    return "tasks_failed" if group.rows.counters["failed"] else "success"


def _may_owe(facts: MixedFacts, group: GroupFacts) -> bool:
    """Whether one of its hosts was disturbed: it may owe its teardown."""
    began = min((line.at for line in group.hooks), default=group.settled_at)
    hosts = {line.host for line in group.hooks}
    return any(disturbed(facts, host, began, group.settled_at) for host in hosts)


def deleted_groups_left_nothing(facts: MixedFacts) -> Iterator[str]:
    for group in facts.groups:
        if group.plan.delete != (group.deleted_at is not None):
            yield f"{group.name}: was it deleted? {group.deleted_at}"
        for table, count in (group.rows_left or {}).items():
            if count:
                yield f"{group.name}: {count} rows are left in {table}"


def no_host_waits_beside_work(facts: MixedFacts) -> Iterator[str]:
    """Claimable work of a group without a host lasts at most 10 s beside a usable host."""
    for idle in facts.idle:
        outages = [d.ended for d in facts.disturbances if not d.host and d.began < idle.ended]
        began = max([idle.began, *(ended + AFTER_OUTAGE_NS for ended in outages)])
        if idle.ended - began > IDLE_LIMIT_NS + LOADED_NS:
            seconds = (idle.ended - began) / SECOND
            yield f"group number {idle.group} waited {seconds:.0f} s beside {idle.host}"


def a_revoked_host_keeps_its_journal(facts: MixedFacts) -> Iterator[str]:
    """Exit status 78, the same journal after it, and what it held is not run again."""
    for one in facts.revocations:
        if one.status != REFUSED_STATUS:
            yield f"{one.host}: the agent with a revoked token ended with {one.status}"
        sizes = len(one.journal_before), len(one.journal_after)
        if one.journal_after != one.journal_before:
            yield f"{one.host}: the journal had {sizes[0]} bytes, then {sizes[1]}"
        if one.back_at - one.refused_from < SOON_BACK_NS:  # else the host was lost
            for group in facts.groups:
                for again in _run_again(one, group):
                    yield f"{group.name}: {again} although its journal had the attempt before"


def _run_again(one: Revocation, group: GroupFacts) -> Iterator[Execution]:
    for task_id, runs in by_task(group).items():
        for first, second in pairwise(runs):
            own = first.attempt <= planned_of(group)[task_id].failures
            if first.host == one.host and not own and first.ended is not None:
                held = one.refused_from < first.ended < one.killed_at - SECOND
                if held and second.started > one.killed_at:
                    yield second


def agents_end_only_when_they_must(facts: MixedFacts) -> Iterator[str]:
    """By themselves: with 78 after a revocation; in any other way only without processes to be had."""
    refused = Counter(one.host for one in facts.revocations)
    for host, count in Counter(h for h, status in facts.exits if status == REFUSED_STATUS).items():
        if count > refused[host]:
            yield f"{host}: ended with 78 {count} times"
    for host, status in facts.exits:
        if status != REFUSED_STATUS and not without_processes(facts):
            yield f"{host}: an agent ended with {status}"


def histories_are_bounded(facts: MixedFacts) -> Iterator[str]:
    for workflow, events in facts.histories.items():
        if events > MOST_EVENTS:
            yield f"{workflow} has {events} events"


def nothing_is_left(facts: MixedFacts) -> Iterator[str]:
    for place, found in facts.leftovers.items():
        if found:
            yield f"{place}: {', '.join(found)}"


CHECKS: tuple[Check, ...] = (
    every_task_has_one_result,
    results_agree_with_effects,
    failures_are_explained,
    every_attempt_started,
    repetitions_are_explained,
    nothing_ran_twice_at_once,
    every_task_ran_prepared,
    nothing_starts_after_its_end,
    counters_are_counts,
    groups_ended_as_they_should,
    deleted_groups_left_nothing,
    no_host_waits_beside_work,
    a_revoked_host_keeps_its_journal,
    agents_end_only_when_they_must,
    histories_are_bounded,
    nothing_is_left,
    *HOOK_CHECKS,
)
