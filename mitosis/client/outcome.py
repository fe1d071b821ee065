"""The outcome of a task for programs: its return value, or an exception that describes the failure."""

from typing import Any

from mitosis.contracts.errors import MitosisError
from mitosis.contracts.http import TaskInfo
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.outcome import signal_name


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker, as text; the cause of a :class:`TaskFailed`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


class TaskFailed(MitosisError):
    """A task failed: it raised, exited with a status other than 0, or was killed or cancelled."""

    code = "task_failed"

    def __init__(self, task: TaskInfo) -> None:
        """``task`` has all details of the failed task."""
        detail = task.detail or {}
        said = detail.get("message")
        what = said if isinstance(said, str) and said else _how(task)
        super().__init__(
            f"task {task.task_id} ({_what(task)}) {task.state.value}: {what}",
            task_id=task.task_id,
            kind=task.kind,
            exit_code=task.exit_code,
            signal=task.signal,
        )
        self.task = task
        traceback = detail.get("traceback")
        self.remote_traceback = traceback if isinstance(traceback, str) else None
        if self.remote_traceback is not None:
            self.__cause__ = RemoteTraceback(self.remote_traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.task,)

    @property
    def kind(self) -> str | None:
        """The cause, such as ``timeout``: a :class:`~mitosis.contracts.outcome.FailureKind`."""
        return self.task.kind


class SetupFailed(MitosisError):
    """The setup hook of the task group failed on every host that may run it, so its tasks cannot run."""

    code = "setup_failed"


class TaskNotRun(MitosisError):
    """The task group ended without running this task."""

    code = "task_not_run"


class ResultUnreadable(MitosisError):
    """A task succeeded, but the value that an earlier version stored for it cannot be read back."""

    code = "result_unreadable"


def result_of(task: TaskInfo) -> Any:
    """Return the return value of a handler.

    Raises:
        TaskFailed: the task did not succeed.
        ResultUnreadable: it did, and its stored result cannot be read.
    """
    if task.state is not TaskState.SUCCEEDED:
        raise TaskFailed(task)
    detail = task.detail or {}
    if "result" not in detail and (lost := detail.get("unreadable")) is not None:
        raise ResultUnreadable(
            f"the result of task {task.task_id} is stored but cannot be read: {lost}",
            task_id=task.task_id,
        )
    return detail.get("result")


def _what(task: TaskInfo) -> str:
    handler, command = task.spec.get("handler"), task.spec.get("command")
    if isinstance(handler, str):
        return handler
    return str(command[0]) if isinstance(command, list) and command else "task"


def _how(task: TaskInfo) -> str:
    if task.signal is not None:
        return f"killed by {signal_name(task.signal)}"
    if task.exit_code is not None:
        return f"exit status {task.exit_code}"
    return str(task.kind or "no reason is known").replace("_", " ")
