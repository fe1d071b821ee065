"""`mitosis task …`: single tasks."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from mitosis.cli import plain_app
from mitosis.cli.command import Cli, check_reference, register
from mitosis.cli.task_view import task_item
from mitosis.contracts.errors import InvalidRequest, NotFound
from mitosis.contracts.ids import parse_task_uuid, task_uuid

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import TaskInfo

app = plain_app()


@app.callback()
def task() -> None:
    """Single tasks."""


@register(app, "show")
def show(
    cli: Cli,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Number of the task with --group, or its UUID.")
    ],
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="The group that the number belongs to.")
    ] = None,
) -> None:
    """Show one task: what it runs, how it ended, its output, its earlier failures."""
    if task.isascii() and task.isdigit():
        if group is None:
            raise InvalidRequest(
                f"say whose task {task} it is, as in: mitosis task show {task} --group NAME",
                option="--group",
            )
        check_reference(group)
        with cli.client() as client:
            cli.output.item(task_item(task_of_group(client, group, int(task))))
        return
    public_id = _parse_uuid(task)
    with cli.client() as client:
        cli.output.item(task_item(client.task(public_id)))


def task_of_group(client: "SyncClient", group: str, number: int) -> "TaskInfo":
    """A task by its number: the id of any task of the group names the group, the number does the rest.

    Raises:
        NotFound: the group has no such task.
    """
    some = next(client.tasks(group), None)
    if some is None:
        raise NotFound(f"the task group {group} has no tasks")
    return client.task(task_uuid(parse_task_uuid(some.task_uuid)[0], number))


def _parse_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is neither the number of a task nor a UUID", option="TASK"
        ) from None
