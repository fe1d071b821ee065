"""What the disturbances of a campaign explain. Pure."""

from collections import defaultdict

from mitosis.contracts.host_failures import QUARANTINE_AFTER
from tests.chaos.facts import Execution
from tests.chaos.mixed.facts import GroupFacts, MixedFacts
from tests.chaos.mixed.plan import MixedTask, Trouble

SECOND = 1_000_000_000
UNREPORTED_NS = 2 * SECOND
"""What happened so short before a disturbance may not have been reported, or written, by then."""
DYING_NS = 5 * SECOND
"""So long after one its effects may still begin."""


def disturbed(facts: MixedFacts, host: str, began: int, ended: int) -> bool:
    """Whether something happened to this host between the two moments, or right before or after."""
    return any(
        one.began <= ended + UNREPORTED_NS and one.ended >= began - DYING_NS
        for one in facts.disturbances
        if one.host == host
    )


def servers_were_down(facts: MixedFacts, began: int, ended: int) -> bool:
    return any(
        one.began <= ended and one.ended >= began - DYING_NS
        for one in facts.disturbances
        if not one.host
    )


def without_processes(facts: MixedFacts) -> bool:
    return any(one.trouble is Trouble.FULL_PIDS for one in facts.disturbances)


def refused_large(facts: MixedFacts) -> bool:
    return any(one.trouble is Trouble.REFUSED_REPORTS for one in facts.disturbances)


def by_task(group: GroupFacts) -> defaultdict[int, list[Execution]]:
    """Executions of each task in the order of their starts."""
    runs: defaultdict[int, list[Execution]] = defaultdict(list)
    for run in sorted(group.executions, key=lambda run: run.started):
        runs[run.task_id].append(run)
    return runs


def planned_of(group: GroupFacts) -> dict[int, MixedTask]:
    return dict(zip(group.submitted, group.plan.tasks, strict=False))


def was_doubted(group: GroupFacts, task_id: int) -> bool:
    """Whether this task failed in a row of failures of different tasks on one host.

    By them the host is suspected, and the last failure of each is not final (C-33). Reports come in another
    order than the ends of a few workers: a row that is one shorter counts too.
    """
    tasks, rows = planned_of(group), defaultdict[str, list[int]](list)
    for run in sorted(group.executions, key=lambda run: run.ended or 0):
        if run.ended is None or run.task_id not in tasks:
            continue
        row = rows[run.host]
        if run.attempt > tasks[run.task_id].failures:
            row.clear()
            continue
        row.append(run.task_id)
        if task_id in row and len(set(row)) >= QUARANTINE_AFTER - 1:
            return True
    return False
