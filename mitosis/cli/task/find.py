"""Finds the task that the command line names."""

from typing import TYPE_CHECKING
from uuid import UUID

from mitosis.cli.references import check_reference
from mitosis.contracts.errors import NotFound
from mitosis.contracts.ids import parse_task_uuid, task_uuid

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import TaskInfo


def split_target(text: str) -> tuple[str, int | UUID | None]:
    """Split ``render/17`` into task group and task; ``team/render`` and ``team/render/17`` work too.

    The UUID of a task, as printed by `mitosis group tasks --quiet`, can replace its number. It can also
    be given alone: the task group is then "".

    Raises:
        InvalidRequest: it names no task group.
    """
    group, slash, last = text.rpartition("/")
    if slash and last.isascii() and last.isdigit():
        return check_reference(group), int(last)
    if (public_id := _task_uuid(last)) is not None:
        return check_reference(group) if slash else "", public_id
    return check_reference(text), None


def _task_uuid(text: str) -> UUID | None:
    """Parse the UUID of a task; task groups and hosts have other kinds of UUIDs."""
    try:
        public_id = UUID(text)
        parse_task_uuid(public_id)
    except ValueError:
        return None
    return public_id


def task_of_group(client: "SyncClient", group: str, number: int | UUID) -> "TaskInfo":
    """Return a task by its number in the group, or by its UUID.

    The UUID of a task is made of its group and its number, so any task of the group gives the prefix. A
    UUID is found without a group (""); with one, the task must belong to it.

    Raises:
        NotFound: the group has no such task.
    """
    if isinstance(number, UUID):
        task = client.task(number)
        if group and client.group(group).task_group_id != task.task_group_id:
            raise NotFound(f"{number} is not a task of {group}")
        return task
    some = next(client.tasks(group), None)
    if some is None:
        raise NotFound(f"the task group {group} has no tasks")
    return client.task(task_uuid(parse_task_uuid(some.task_uuid)[0], number))
