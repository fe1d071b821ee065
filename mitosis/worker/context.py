"""``mitosis.current_task()``: facts about the running task, for handlers and Python commands."""

import json
import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import NotFound
from mitosis.contracts.ids import task_uuid_text


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
    named_task: str | None = None
    """``NAMESPACE/NAME@VERSION`` in a worker service; None on a host."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """With which the worker service executes this named task."""
    configuration_version: int | None = None
    """Rises with each change of the configuration; recorded with the attempt."""


task_of_coroutine: ContextVar[TaskContext | None] = ContextVar("task_of_coroutine", default=None)
"""The task of a handler that shares its process with others."""


def current_task() -> TaskContext:
    """Return the task that this process runs, or was started for.

    Raises:
        NotFound: no task runs here.
    """
    if (found := task_of_coroutine.get()) is not None:
        return found
    return task_context(os.environ)


def task_context(variables: Mapping[str, str]) -> TaskContext:
    """Return the task that these variables of its process name.

    Raises:
        NotFound: they name none.
    """
    try:
        return TaskContext(
            task_id=int(variables["MITOSIS_TASK_ID"]),
            task_uuid=UUID(variables["MITOSIS_TASK_UUID"]),
            attempt=int(variables["MITOSIS_TASK_ATTEMPT"]),
            task_group_name=variables["MITOSIS_TASK_GROUP_NAME"],
            group_name=variables["MITOSIS_GROUP_NAME"],
            scratch_folder=Path(variables["MITOSIS_EXEC_DIR"]),
            **_of_named_task(variables),
        )
    except KeyError as missing:
        raise NotFound(
            f"no Mitosis task runs in this process ({missing.args[0]} is not set)"
        ) from None


def _of_named_task(variables: Mapping[str, str]) -> dict[str, Any]:
    name = variables.get("MITOSIS_NAMED_TASK")
    if name is None:
        return {}
    return {
        "named_task": name,
        "configuration": json.loads(variables["MITOSIS_CONFIGURATION"]),
        "configuration_version": int(variables["MITOSIS_CONFIGURATION_VERSION"]),
    }


def task_variables(group_number: int, key: AttemptKey) -> dict[str, str]:
    """Return the environment variables that differ from task to task."""
    return {
        "MITOSIS_TASK_ID": str(key.task_id),
        "MITOSIS_TASK_UUID": task_uuid_text(group_number, key.task_id),
        "MITOSIS_TASK_ATTEMPT": str(key.attempt),
    }
