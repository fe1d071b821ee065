"""``mitosis.current_task()``: facts about the running task, for handlers and Python commands."""

import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import NotFound
from mitosis.contracts.ids import task_uuid


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Facts about the running task."""

    task_id: int
    task_uuid: UUID
    attempt: int
    """1 for the first; every claim adds 1. A result belongs to the attempt that made it."""
    task_group_name: str
    group_name: str
    scratch_folder: Path
    """Private to this worker; emptied after the task."""


def current_task() -> TaskContext:
    """Return the task that this process runs, or was started for.

    Raises:
        NotFound: no task runs here.
    """
    variables = os.environ
    try:
        return TaskContext(
            task_id=int(variables["MITOSIS_TASK_ID"]),
            task_uuid=UUID(variables["MITOSIS_TASK_UUID"]),
            attempt=int(variables["MITOSIS_TASK_ATTEMPT"]),
            task_group_name=variables["MITOSIS_TASK_GROUP_NAME"],
            group_name=variables["MITOSIS_GROUP_NAME"],
            scratch_folder=Path(variables["MITOSIS_EXEC_DIR"]),
        )
    except KeyError as missing:
        raise NotFound(
            f"no Mitosis task runs in this process ({missing.args[0]} is not set)"
        ) from None


def task_variables(group_number: int, key: AttemptKey) -> dict[str, str]:
    """Return the environment variables that differ from task to task."""
    return {
        "MITOSIS_TASK_ID": str(key.task_id),
        "MITOSIS_TASK_UUID": str(task_uuid(group_number, key.task_id)),
        "MITOSIS_TASK_ATTEMPT": str(key.attempt),
    }
