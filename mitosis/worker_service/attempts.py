"""Translates between the calls of worker services and the messages of process slots. No I/O.

A slot knows an attempt by the number of its task; the API by a UUID that also has the number of the group.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby

import msgspec
from msgspec import Raw

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.ids import parse_task_uuid, task_uuid
from mitosis.contracts.named_tasks import TaskName, task_name
from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.run_spec import RunSpec
from mitosis.contracts.service_tasks import HeldAttempt, NamedTaskAttempt, NamedTaskReport
from mitosis.contracts.task import TaskSpec, command_fields
from mitosis.contracts.wire import ClaimedTask, Outcome, ReportFields, TaskReport
from mitosis.ipc.messages import EncodedReport
from mitosis.worker_service.targets import Target

_spec = msgspec.json.Decoder(TaskSpec)
_encode = msgspec.json.Encoder().encode


class _Report(ReportFields, forbid_unknown_fields=False, kw_only=True):
    """A report as a slot encodes it."""

    detail: Raw = msgspec.field(default_factory=lambda: Raw(b"{}"))


_report = msgspec.json.Decoder(_Report)


class Groups:
    """The numbers of the task groups of the attempts that this process holds."""

    def __init__(self) -> None:
        self._of_task: dict[int, int] = {}

    def note(self, attempt: NamedTaskAttempt) -> AttemptKey:
        """Record the group of an attempt; return its key."""
        group, task = parse_task_uuid(attempt.task_id)
        self._of_task[task] = group
        return AttemptKey(task, attempt.attempt)

    def number(self, key: AttemptKey) -> int:
        return self._of_task[key.task_id]

    def keep(self, held: Iterable[AttemptKey]) -> None:
        """Forget all but these."""
        tasks = {key.task_id for key in held}
        self._of_task = {task: group for task, group in self._of_task.items() if task in tasks}

    def by_number(
        self, reports: Iterable[EncodedReport]
    ) -> list[tuple[int, tuple[EncodedReport, ...]]]:
        """Return the reports of each group."""
        sorted_reports = sorted(reports, key=lambda one: self.number(one.key))
        grouped = groupby(sorted_reports, key=lambda one: self.number(one.key))
        return [(number, tuple(of_group)) for number, of_group in grouped]


def held(
    groups: Groups, running: Iterable[AttemptKey], pending: Iterable[tuple[int, AttemptKey]]
) -> tuple[HeldAttempt, ...]:
    """Return what a claim and a heartbeat name: what runs, and what has ended and has no answer yet."""
    numbers = {(groups.number(key), key) for key in running} | set(pending)
    return tuple(
        HeldAttempt(task_id=task_uuid(number, key.task_id), attempt=key.attempt)
        for number, key in sorted(numbers)
    )


def claimed(
    attempt: NamedTaskAttempt, key: AttemptKey, targets: Mapping[TaskName, Target], folder: str
) -> ClaimedTask:
    """Return an attempt as a session takes it; commands start in ``folder``."""
    spec = _spec.decode(attempt.spec)
    target = targets[TaskName(attempt.namespace, attempt.name, attempt.version)]
    run = RunSpec(
        environment=spec.environment,
        working_directory=spec.working_directory,
        timeout_seconds=spec.timeout_seconds,
        kill_grace_seconds=spec.kill_grace_seconds,
        variables=_variables(attempt),
    )
    if target.executor is not None:
        run.input = _encode(attempt).decode()
    elif target.handler is not None:
        run.handler, run.arguments = target.handler, spec.arguments
    else:
        fields = command_fields(target.command)
        run.command, run.command_encoding = (
            fields["command"],
            fields.get("command_encoding", "text"),
        )
        run.working_directory = spec.working_directory or folder
        run.input = _encode(attempt).decode()
    return ClaimedTask(
        task_id=key.task_id, attempt=key.attempt, spec=Raw(_encode(run)), alone=attempt.alone
    )


def _variables(attempt: NamedTaskAttempt) -> dict[str, str]:
    return {
        "MITOSIS_TASK_UUID": str(attempt.task_id),
        "MITOSIS_TASK_GROUP_UUID": str(attempt.task_group_id),
        "MITOSIS_TASK_GROUP_NAME": attempt.task_group_name,
        "MITOSIS_NAMED_TASK": task_name(attempt.namespace, attempt.name, attempt.version),
        "MITOSIS_CONFIGURATION": bytes(attempt.configuration).decode(),
        "MITOSIS_CONFIGURATION_VERSION": str(attempt.configuration_version),
    }


def not_executed(key: AttemptKey, kind: FailureKind, message: str) -> EncodedReport:
    """Return the report of an attempt that is not started."""
    cancelled = kind is FailureKind.CANCELLED
    report = TaskReport(
        task_id=key.task_id,
        attempt=key.attempt,
        outcome=Outcome.CANCELLED if cancelled else Outcome.FAILED,
        kind=kind,
        detail=Raw(_encode({"message": message})),
    )
    return EncodedReport.of(report)


def named_report(group_number: int, encoded: bytes) -> NamedTaskReport:
    """Return the report of a slot as a worker service sends it.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    report = _report.decode(encoded)
    return NamedTaskReport(
        task_id=task_uuid(group_number, report.task_id),
        attempt=report.attempt,
        outcome=report.outcome,
        kind=report.kind,
        exit_code=report.exit_code,
        signal=report.signal,
        started_at=report.started_at,
        finished_at=report.finished_at,
        detail=report.detail,
    )
