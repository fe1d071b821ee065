"""The errors for what a caller named and PostgreSQL does not have."""

from typing import TypeVar
from uuid import UUID

from mitosis.contracts.errors import NotFound

T = TypeVar("T")


def require_task_group(found: T | None, task_group_id: UUID | None = None) -> T:
    """Return what was found of a task group.

    Raises:
        NotFound: it is None.
    """
    if found is None:
        facts = {} if task_group_id is None else {"task_group_id": str(task_group_id)}
        raise NotFound("no such task group", **facts)
    return found


def require_manager(found: T | None, manager_id: UUID) -> T:
    """Return what was found of a manager.

    Raises:
        NotFound: it is None.
    """
    if found is None:
        raise NotFound("no such manager", manager_id=str(manager_id))
    return found


def require_task(found: T | None, task_id: UUID) -> T:
    """Return what was found of a task.

    Raises:
        NotFound: it is None.
    """
    if found is None:
        raise NotFound("no such task", task_id=str(task_id))
    return found
