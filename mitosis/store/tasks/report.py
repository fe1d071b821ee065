"""Records a batch of ended attempts in PostgreSQL (protocol P2, P3).

The statement decides between another attempt and the end, on rows it has locked. This module converts
reports to its parameters, and its rows to the answer for the sender.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import TooLarge
from mitosis.contracts.lifecycle import LeaseState
from mitosis.contracts.outcome import (
    CRASHES,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    LOST_ALONE,
    LOST_LIMIT,
    TERMINATION_PAUSE_SECONDS,
    WORKERS_LOST_AGAIN,
    WORKERS_POISON,
    ExitKind,
    ExitReason,
    FailureKind,
    crash_limit,
    is_termination,
)
from mitosis.contracts.wire import (
    MAX_REPORTS,
    LeaseStanding,
    Outcome,
    ReportAnswer,
    ReportStatus,
    ReportTasks,
    TaskReport,
)
from mitosis.store.leases.doubt import (
    AWAITED,
    GIVEN_UP,
    MESSAGE,
    Failed,
    judge_report,
    with_other_hosts,
)
from mitosis.store.leases.ending import STANDING
from mitosis.store.leases.failing_host import log_lone_host
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import BY_INDEX, WITHOUT_LOOPS, Connection
from mitosis.store.pg.rows import fetch_all, to_record
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.claimant import with_claimant
from mitosis.store.tasks.readable import storable
from mitosis.store.tasks.terminations import termination_limits

SQL = load("tasks/report.sql")


class _Statements(NamedTuple):
    """Those of one kind of sender, in their order."""

    lock: LiteralString
    other_hosts: LiteralString
    report: LiteralString


def _of(sender: LiteralString) -> _Statements:
    """Return the statements of a report for reports of hosts or of worker services."""
    lock, other_hosts, report = (
        with_claimant(SQL[name].replace("$lease$", SQL[sender]))
        for name in ("lock_for_report", "other_hosts", "report")
    )
    return _Statements(lock, with_other_hosts(other_hosts), report)


OF_HOST, OF_SERVICE = _of("of_host"), _of("of_service")
log = logging.getLogger(__name__)

_WITH_MESSAGE = CRASHES | {FailureKind.TERMINATED, FailureKind.WORKERS_LOST}
_KINDS = {kind.value: kind for kind in FailureKind}
NEVER = 0
"""Crash limit of a crash that never ends its task (None: not a crash)."""
FINAL = -1
"""Crash limit of a failure that ends its task under any retry policy; it counts as no crash."""
FINAL_KINDS = frozenset({FailureKind.RESULT_REFUSED})

TERMINATED = MESSAGE + "terminated by SIGTERM or SIGINT in a row "


@dataclass(frozen=True, slots=True)
class _Crash:
    """An attempt that ended by a crash, and the number of crashes of its task."""

    key: tuple[int, int]
    count: int
    given_up: bool


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The row of ``report``: the attempts whose report counted."""

    lease_state: LeaseState
    task_ids: list[int] | None
    attempts: list[int] | None
    crashes: list[_Crash] | None
    group_number: int | None
    manager_number: int | None
    failed_tasks: list[int] | None
    """That failed, and began after the last success in the batch."""
    succeeded: bool
    clears: bool
    """One that succeeded began after all whose failure here is doubted."""
    watched: bool
    """Tasks fail on this host, or it may judge others by its success (C-33)."""
    known_failures: int
    """In a row on this host, before this report."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """A row of ``why_not``."""

    id: int
    attempt: int
    status: ReportStatus


async def report_tasks(
    store: Store, sender: UUID, request: ReportTasks, *, of_service: bool = False
) -> ReportAnswer:
    """Record how attempts ended; return the status of each report (P2, P3).

    A report is accepted from the manager that claimed the attempt, also under an epoch that has ended; or
    from the worker service that did (P10).

    Raises:
        TooLarge: more than ``wire.MAX_REPORTS``.
    """
    if len(request.reports) > MAX_REPORTS:
        raise TooLarge(
            f"one call takes at most {MAX_REPORTS} reports, not {len(request.reports)}",
            field="reports",
            limit=MAX_REPORTS,
        )
    distinct: dict[AttemptKey, TaskReport] = {}
    for item in request.reports:
        distinct.setdefault(_key(item), storable(item))
    reports = [distinct[key] for key in sorted(distinct)]
    limits = await termination_limits(store, _terminated(reports))
    columns = _columns(sender, request.epoch, reports, store.quarantine_after) | {
        "termination_limits": number_array(limits.get(item.task_id) for item in reports)
    }
    failed = any(item.outcome is Outcome.FAILED for item in reports)
    found = await _record(store, OF_SERVICE if of_service else OF_HOST, columns, failed=failed)
    if found is None:  # no such lease, or another manager's
        statuses = [ReportStatus.UNKNOWN] * len(request.reports)
        return ReportAnswer(standing=LeaseStanding.GONE, statuses=statuses)
    row = to_record(found, _Recorded)
    if row.failed_tasks or (row.watched and row.succeeded):
        await _judge_host(store, row)
    for crash in row.crashes or ():
        _log_crash(sender, distinct[AttemptKey(*crash.key)], crash.count, crash.given_up)
    keys = zip(row.task_ids or (), row.attempts or (), strict=True)
    accepted = {AttemptKey(*key) for key in keys}
    fates = dict.fromkeys(accepted, ReportStatus.COMMITTED)
    rest = [item for item in reports if _key(item) not in accepted]
    if rest:
        stopped = _columns(sender, request.epoch, rest, store.quarantine_after)
        async with store.database.connection() as connection:
            await connection.execute(SQL["stopped"], stopped)
            fates |= await _why_not(connection, request.epoch, rest)
    return ReportAnswer(
        standing=STANDING[row.lease_state], statuses=_in_order(request.reports, fates)
    )


async def _record(
    store: Store, statements: _Statements, columns: Mapping[str, Any], *, failed: bool
) -> Mapping[str, Any] | None:
    """Return the row of ``report``; ``failed``: whether other hosts matter."""
    async with store.database.pipelined_transaction() as connection:
        await connection.execute(statements.lock, columns, prepare=True)
        if failed:
            await connection.execute(statements.other_hosts, columns, prepare=True)
        for setting in (WITHOUT_LOOPS, BY_INDEX):
            await connection.execute(setting, prepare=True)
        cursor = await connection.execute(statements.report, columns, prepare=True)
    return await cursor.fetchone()


async def _judge_host(store: Store, row: _Recorded) -> None:
    if row.group_number is not None and row.manager_number is not None:
        tasks = sorted(row.failed_tasks or ())
        failed = Failed(row.group_number, row.manager_number, tasks, row.clears)
        await judge_report(store, failed)
        if tasks:
            known = 0 if row.clears else row.known_failures
            await log_lone_host(
                store, row.group_number, row.manager_number, len(tasks), known_failures=known
            )


def _in_order(
    items: Sequence[TaskReport], fates: Mapping[AttemptKey, ReportStatus]
) -> list[ReportStatus]:
    """Return one status per report; a second copy of a committed report is a duplicate."""
    seen: set[AttemptKey] = set()
    statuses = []
    for item in items:
        key = _key(item)
        status = fates[key]
        if key in seen and status is ReportStatus.COMMITTED:
            status = ReportStatus.DUPLICATE
        seen.add(key)
        statuses.append(status)
    return statuses


async def _why_not(
    connection: Connection, epoch: int, items: Sequence[TaskReport]
) -> dict[AttemptKey, ReportStatus]:
    parameters = {
        "epoch": epoch,
        "ids": number_array(item.task_id for item in items),
        "attempts": number_array(item.attempt for item in items),
        "outcomes": [item.outcome.value for item in items],
    }
    rows = await fetch_all(connection, _Refused, SQL["why_not"], parameters)
    return {AttemptKey(row.id, row.attempt): row.status for row in rows}


def _columns(
    sender: UUID, epoch: int, items: Sequence[TaskReport], quarantine_after: int
) -> dict[str, object]:
    """Return one array per column of the statement, in the order of ``items``."""
    kinds = [_kind(item) for item in items]
    return {
        "holder": sender,
        "epoch": epoch,
        "ids": number_array(item.task_id for item in items),
        "attempts": number_array(item.attempt for item in items),
        "outcomes": [item.outcome.value for item in items],
        "kinds": kinds,
        "exit_codes": number_array(item.exit_code for item in items),
        "signals": number_array(item.signal for item in items),
        "started": number_array(item.started_at for item in items),
        "finished": number_array(item.finished_at for item in items),
        "details": [_detail(item, kind) for item, kind in zip(items, kinds, strict=True)],
        "quarantine_after": quarantine_after,
        **AWAITED,
        "message": MESSAGE,
        "given_up": GIVEN_UP,
        "terminated": TERMINATED,
        "lost_limit": LOST_LIMIT,
        "alone_at": LOST_ALONE,
        "lost_again": MESSAGE + WORKERS_LOST_AGAIN,
        "poison": '{"poison":true,"message":"' + WORKERS_POISON,
        "termination_pause": TERMINATION_PAUSE_SECONDS,
        "first_pause": FIRST_PAUSE_SECONDS,
        "longest_pause": LONGEST_PAUSE_SECONDS,
        "crash_limits": number_array(
            _crash_limit(item, kind) for item, kind in zip(items, kinds, strict=True)
        ),
    }


def _key(item: TaskReport) -> AttemptKey:
    return AttemptKey(item.task_id, item.attempt)


def _kind(item: TaskReport) -> FailureKind | None:
    """Return a known kind for every failure, None for a success."""
    match item.outcome:
        case Outcome.SUCCEEDED:
            return None
        case Outcome.CANCELLED:
            return FailureKind.CANCELLED
        case Outcome.FAILED:
            kind = _KINDS.get(item.kind or "", FailureKind.EXIT_CODE)
            ended_by_signal = kind in CRASHES and is_termination(_reason(item))
            return FailureKind.TERMINATED if ended_by_signal else kind


def _terminated(items: Sequence[TaskReport]) -> list[int]:
    return [item.task_id for item in items if _kind(item) is FailureKind.TERMINATED]


def _crash_limit(item: TaskReport, kind: FailureKind | None) -> int | None:
    """Return how many crashes end the task; None for no crash, or :data:`NEVER` or :data:`FINAL`."""
    if kind in FINAL_KINDS:
        return FINAL
    if kind is FailureKind.TERMINATED:
        return NEVER
    if kind not in CRASHES:
        return None
    return crash_limit(_reason(item)) or NEVER


def _reason(item: TaskReport) -> ExitReason:
    """Return how the command ended, or its worker if that died (C-19)."""
    if item.signal is not None:
        return ExitReason(ExitKind.SIGNAL, item.signal)
    if item.exit_code:
        return ExitReason(ExitKind.EXIT_CODE, item.exit_code)
    return ExitReason(
        ExitKind.UNKNOWN
    )  # a worker that exits with 0 during a task has not finished it


def _detail(item: TaskReport, kind: FailureKind | None) -> str:
    """Return the JSON document as text; that of a crash begins with :data:`MESSAGE`."""
    if kind not in _WITH_MESSAGE:
        return bytes(item.detail).decode()
    detail = _decoded_detail(item)
    message = str(detail.get("message") or _reason(item))
    rest = {name: value for name, value in detail.items() if name != "message"}
    return msgspec.json.encode({"message": message, **rest}).decode()


def _decoded_detail(item: TaskReport) -> dict[str, Any]:
    return msgspec.json.decode(item.detail, type=dict[str, Any])


def _log_crash(sender: UUID, item: TaskReport, count: int, given_up: bool) -> None:
    """Log a crash of a task (S000-68, S000-69)."""
    detail = _decoded_detail(item)
    facts = {
        "task_id": item.task_id,
        "worker_id": f"{sender}:{detail.get('worker', '?')}",
        "reason": str(detail.get("message") or _reason(item)),
        "failure_count": count,
    }
    if given_up:
        log.warning("task.given_up", extra=facts)
    else:
        log.info("task.requeued", extra=facts)
