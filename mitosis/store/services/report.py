"""Reports of worker services: each goes to the lease of its task group (protocol P2, P10)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.errors import NotAvailable, WorkerNotFound
from mitosis.contracts.ids import parse_task_uuid
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.service_tasks import (
    NamedTaskReport,
    RegistrationStanding,
    ReportNamedTasks,
    ReportNamedTasksAnswer,
    ReportOperation,
    SingleReport,
    SingleReportAnswer,
)
from mitosis.contracts.wire import Outcome, ReportStatus, ReportTasks, TaskReport
from mitosis.contracts.worker_services import HeldTask
from mitosis.store.leases.service_leases import lease_of_group, to_stop
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store
from mitosis.store.tasks.report import report_tasks

SQL = load("services/report.sql")
TASK_ID_VERSION = 8
"""A UUID of another version is not the id of a task."""


@dataclass(frozen=True, slots=True)
class _Standing:
    incarnation: int
    current: bool


async def report_named_tasks(
    store: Store, worker_uuid: UUID, request: ReportNamedTasks
) -> ReportNamedTasksAnswer:
    """Record how attempts ended; return the status of each report, and what the registration is.

    A report counts also from an earlier process and after its registration, as long as no one has claimed
    the task since.

    Raises:
        WorkerNotFound: there is no such worker service.
        TooLarge: more than ``wire.MAX_REPORTS``.
    """
    statuses: list[ReportStatus] = [ReportStatus.UNKNOWN] * len(request.reports)
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, report in enumerate(request.reports):
        if report.task_id.version == TASK_ID_VERSION:
            places[parse_task_uuid(report.task_id)[0]].append(place)
    for group, of_group in sorted(places.items()):
        reports = [request.reports[place] for place in of_group]
        for place, status in zip(
            of_group, await _report(store, worker_uuid, group, reports), strict=True
        ):
            statuses[place] = status
    standing = await _standing(store, worker_uuid, request.incarnation)
    return ReportNamedTasksAnswer(standing=standing, statuses=statuses)


async def report_one(store: Store, worker_uuid: UUID, report: SingleReport) -> SingleReportAnswer:
    """Record how one attempt ended; for a Finish say only whether a Commit would count.

    Raises:
        NotAvailable: an Upload; there is no store of files.
        WorkerNotFound: there is no such worker service.
    """
    if report.operation is ReportOperation.UPLOAD:
        raise NotAvailable(
            "files of named tasks cannot be stored yet: put the result into detail.result",
            field="operation",
        )
    if report.operation is ReportOperation.FINISH:
        return await _finished(store, worker_uuid, report)
    cancelled = report.operation is ReportOperation.CANCEL
    outcome = Outcome.CANCELLED if cancelled else report.outcome
    fields = {name: getattr(report, name) for name in NamedTaskReport.__struct_fields__}
    request = ReportNamedTasks(
        incarnation=report.incarnation,
        reports=[NamedTaskReport(**{**fields, "outcome": outcome})],
    )
    answer = await report_named_tasks(store, worker_uuid, request)
    return SingleReportAnswer(standing=answer.standing, status=answer.statuses[0])


async def _finished(store: Store, worker_uuid: UUID, report: SingleReport) -> SingleReportAnswer:
    counts = False
    if report.task_id.version == TASK_ID_VERSION:
        held = [HeldTask(task_id=report.task_id, attempt=report.attempt)]
        async with store.database.connection() as connection:
            counts = not any(one.superseded for one in await to_stop(connection, worker_uuid, held))
    standing = await _standing(store, worker_uuid, report.incarnation)
    return SingleReportAnswer(standing=standing, status=None if counts else ReportStatus.SUPERSEDED)


async def _report(
    store: Store, worker_uuid: UUID, group: int, reports: Sequence[NamedTaskReport]
) -> Sequence[ReportStatus]:
    async with store.database.connection() as connection:
        epoch = await lease_of_group(connection, worker_uuid, group)
    if epoch is None:
        return [ReportStatus.UNKNOWN] * len(reports)
    body = ReportTasks(epoch=epoch, reports=[_task_report(one) for one in reports])
    return (await report_tasks(store, worker_uuid, body, of_service=True)).statuses


def _task_report(report: NamedTaskReport) -> TaskReport:
    """Return the same report as that of a host."""
    kind = report.kind
    if kind is None and report.outcome is Outcome.FAILED:
        kind = FailureKind.HANDLER_ERROR.value if report.exit_code is None else None
    return TaskReport(
        task_id=parse_task_uuid(report.task_id)[1],
        attempt=report.attempt,
        outcome=report.outcome,
        kind=kind,
        exit_code=report.exit_code,
        signal=report.signal,
        started_at=report.started_at,
        finished_at=report.finished_at,
        detail=report.detail,
    )


async def _standing(store: Store, worker_uuid: UUID, incarnation: int) -> RegistrationStanding:
    async with store.database.connection() as connection:
        parameters = {"worker": worker_uuid, "incarnation": incarnation}
        found = await fetch_one(connection, _Standing, SQL["standing"], parameters)
    if found is None:
        raise WorkerNotFound
    if incarnation < found.incarnation:
        return RegistrationStanding.SUPERSEDED
    return RegistrationStanding.CURRENT if found.current else RegistrationStanding.OVER
