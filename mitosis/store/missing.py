"""The errors for things that a caller named and PostgreSQL does not have."""

from typing import TypeVar
from uuid import UUID

from mitosis.contracts.errors import NotFound

T = TypeVar("T")


def missing_task_group(reference: UUID | str | None = None) -> NotFound:
    """Return the error for a task group that does not exist, or that the caller may not see.

    ``reference`` is the caller's reference: an id, or USERGROUP/NAME.
    """
    if reference is None:
        return NotFound("no such task group")
    if isinstance(reference, UUID):
        return NotFound("no such task group", task_group_id=str(reference))
    return NotFound(f"no such task group: {reference}")


def require_task_group(found: T | None, reference: UUID | str | None = None) -> T:
    """Return the task group that was found.

    Raises:
        NotFound: it is None.
    """
    if found is None:
        raise missing_task_group(reference)
    return found


def require_manager(found: T | None, manager_id: UUID) -> T:
    """Return the manager that was found.

    Raises:
        NotFound: it is None.
    """
    if found is None:
        raise NotFound("no such manager", manager_id=str(manager_id))
    return found


def require_task(found: T | None, task_id: UUID) -> T:
    """Return the task that was found.

    Raises:
        NotFound: it is None.
    """
    if found is None:
        raise NotFound("no such task", task_id=str(task_id))
    return found


def missing_run(run_id: UUID) -> NotFound:
    """Return the error for a run that does not exist, or that the caller may not see."""
    return NotFound(f"there is no run {run_id}")


def require_run(found: T | None, run_id: UUID) -> T:
    """Return the run that was found.

    Raises:
        NotFound: it is None.
    """
    if found is None:
        raise missing_run(run_id)
    return found
