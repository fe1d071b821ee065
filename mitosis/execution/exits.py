"""Turns the death of a worker into the report of the attempt it had started (S000-57…70, C-19)."""

import re
import signal
from pathlib import Path

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import ExitKind, ExitReason, FailureKind
from mitosis.contracts.wire import Outcome, TaskReport
from mitosis.execution.events import WorkerExited
from mitosis.ipc.messages import EncodedReport

OVERDUE = "it ran past its timeout and its worker did not end it"
HUNG_CANCEL = "its worker did not end it when it was cancelled"
_STOPPED = ExitReason(ExitKind.SIGNAL, signal.SIGSTOP)


def lost_attempt(
    key: AttemptKey, started_at: float, event: WorkerExited, killed_for: str | None, cancelled: bool
) -> EncodedReport:
    """Make the report of an attempt whose worker died.

    Args:
        key: the attempt.
        started_at: wall clock.
        event: how the worker died.
        killed_for: why the agent killed the worker, if it did.
        cancelled: a user had cancelled the attempt before.
    """
    kind = _kind(event, killed_for, cancelled)
    detail: dict[str, object] = {"message": _message(event, killed_for), "worker": event.slot}
    if event.stderr_tail:
        detail["stderr"] = event.stderr_tail
    reason = event.reason if event.stopped_seconds is None else _STOPPED
    number = reason.number
    report = TaskReport(
        task_id=key.task_id,
        attempt=key.attempt,
        outcome=Outcome.CANCELLED if cancelled else Outcome.FAILED,
        kind=kind,
        exit_code=number if reason.kind is ExitKind.EXIT_CODE else None,
        signal=number if reason.kind is ExitKind.SIGNAL else None,
        started_at=started_at,
        finished_at=max(event.at, started_at),
        detail=msgspec.Raw(msgspec.json.encode(detail)),
    )
    return EncodedReport.of(report)


def _kind(event: WorkerExited, killed_for: str | None, cancelled: bool) -> FailureKind:
    if cancelled:
        return FailureKind.CANCELLED
    if killed_for is not None:
        return FailureKind.TIMEOUT
    if event.zygote is not None:
        return FailureKind.WORKERS_LOST
    if event.stopped_seconds is not None or event.headless:
        return FailureKind.WORKER_LOST
    if event.out_of_memory and event.reason.number == signal.SIGKILL:
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.WORKER_LOST


def _message(event: WorkerExited, killed_for: str | None) -> str:
    if killed_for is not None:
        return killed_for
    if event.zygote is not None:
        return f"the zygote of its worker ended while it ran, and every worker there with it: {event.zygote}"
    if event.stopped_seconds is not None:
        limit = f"{event.stopped_seconds:g} s (agent.stopped_limit_seconds)"
        return f"its worker was stopped by SIGSTOP for more than {limit} and was killed"
    if event.headless:
        return "the main thread of its worker ended, so the worker was killed"
    why = " (out of memory)" if event.out_of_memory else ""
    if event.reason.kind is ExitKind.SUCCESS:
        return f"the worker process ended with status 0 while it ran the task{why}"
    return f"the worker process ended while it ran the task: {event.reason}{why}"


def oom_kills(cgroup: str | None = None, root: Path = Path("/sys/fs/cgroup")) -> int:
    """Count the processes of our memory cgroup that the kernel has killed for lack of memory.

    0 where that cannot be read. Sources: cgroup-v2 ``memory.events``, cgroup-v1 ``memory.oom_control``.

    Args:
        cgroup: content of ``/proc/self/cgroup``; None = read it.
        root: where the cgroup file systems are mounted.
    """
    try:
        text = cgroup if cgroup is not None else Path("/proc/self/cgroup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        inner = path.lstrip("/")
        if controllers == "":
            files = [root / inner / "memory.events"]
        elif "memory" in controllers.split(","):
            files = [root / "memory" / inner / "memory.oom_control"]
            files.append(root / "memory" / "memory.oom_control")  # inside a cgroup namespace
        else:
            continue
        for file in files:
            if (count := _count(file)) is not None:
                return count
    return 0


def _count(file: Path) -> int | None:
    try:
        found = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) if found else None
