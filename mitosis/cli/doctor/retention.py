"""What `mitosis doctor` shows of the rows that are kept for some time only."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from mitosis.cli.doctor.check import Check, ok, warn
from mitosis.cli.rendering import span_text
from mitosis.contracts.retention import KeptRows

LATE_SECONDS = 600.0
"""A pass that has not begun so long after its time: no control worker serves it."""
NAMES = {
    "leases": "ended leases",
    "environments": "environments that are gone",
    "hook_runs": "hook runs",
    "worker_registrations": "ended registrations",
    "worker_named_tasks": "withdrawn named tasks",
    "worker_services": "worker services that are gone",
    "hosts": "deleted hosts",
    "group_bookkeeping": "bookkeeping of settled task groups",
    "task_groups": "settled task groups",
    "runs": "ended runs",
    "deleted_groups": "rests of deleted task groups",
}


def retention_checks(kinds: Iterable[KeptRows], now: datetime) -> Iterator[Check]:
    """Say of each kind how long it is kept, how much was deleted, and when the next pass is due."""
    for one in kinds:
        name = f"kept: {NAMES.get(one.kind, one.kind)}"
        found = f"{_kept(one)}; {_deleted(one)}; {_next(one, now)}"
        if one.overdue_seconds > LATE_SECONDS and not one.in_progress:
            yield warn(name, found, "does a control worker run? Start one: mitosis control")
        else:
            yield ok(name, found)


def _kept(one: KeptRows) -> str:
    if one.finished_at is None:
        return "not looked at yet"
    return "until deleted" if one.kept_seconds is None else span_text(one.kept_seconds)


def _deleted(one: KeptRows) -> str:
    return f"{one.deleted_in_all:,} deleted so far, {one.deleted_last:,} by the last pass"


def _next(one: KeptRows, now: datetime) -> str:
    if one.in_progress:
        return "a pass is in progress"
    left = (one.next_at - now).total_seconds()
    return f"next in {span_text(left)}" if left > 0 else "next now"
