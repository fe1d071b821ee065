"""How a task ended, for programs: what it returned, or an exception that says what happened there."""

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
    """A task has not succeeded: it raised, exited with another status than 0, was killed or cancelled."""

    code = "task_failed"

    def __init__(self, task: TaskInfo) -> None:
        """``task`` is all that is known of it."""
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
        """Why, as ``handler_error`` or ``timeout``: see :class:`~mitosis.contracts.outcome.FailureKind`."""
        return self.task.kind


class SetupFailed(MitosisError):
    """The setup hook of the task group has failed on every host that may run it: its tasks cannot run."""

    code = "setup_failed"


class TaskNotRun(MitosisError):
    """The task group ended without this task."""

    code = "task_not_run"


def result_of(task: TaskInfo) -> Any:
    """Return what a handler has returned.

    Raises:
        TaskFailed: it has not.
    """
    if task.state is not TaskState.SUCCEEDED:
        raise TaskFailed(task)
    return (task.detail or {}).get("result")


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
