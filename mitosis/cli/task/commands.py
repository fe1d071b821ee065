"""`mitosis task …`: single tasks."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from mitosis.cli import plain_app
from mitosis.cli.completion import group_names, groups_and_tasks
from mitosis.cli.context import Cli
from mitosis.cli.references import check_reference
from mitosis.cli.registration import register
from mitosis.cli.task.view import task_item
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
        str,
        typer.Argument(
            metavar="TASK",
            help="GROUP/NUMBER or a UUID; with --group the number alone.",
            autocompletion=groups_and_tasks,
        ),
    ],
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="The group that the number belongs to.",
            autocompletion=group_names,
        ),
    ] = None,
) -> None:
    """Show one task: what it runs, how it ended, its output, its earlier failures."""
    if task.isascii() and task.isdigit():
        if group is None:
            raise InvalidRequest(
                f"say whose task {task} it is, as in: mitosis task show NAME/{task}",
                option="--group",
            )
        check_reference(group)
        with cli.client() as client:
            cli.output.item(task_item(task_of_group(client, group, int(task))))
        return
    named, wanted = _parse(task)
    with cli.client() as client:
        cli.output.item(task_item(task_of_group(client, named or group or "", wanted)))


def split_target(text: str) -> tuple[str, int | UUID | None]:
    """``render/17`` is a task of a group; ``team/render`` and ``team/render/17`` work as well.

    The UUID of a task, as `mitosis group tasks --quiet` prints it, may stand for its number, and alone
    (the group is "" then).

    Raises:
        InvalidRequest: it names no group.
    """
    group, slash, last = text.rpartition("/")
    if slash and last.isascii() and last.isdigit():
        return check_reference(group), int(last)
    if (public_id := _task_uuid(last)) is not None:
        return check_reference(group) if slash else "", public_id
    return check_reference(text), None


def _task_uuid(text: str) -> UUID | None:
    """The id of a task; groups and managers have other kinds of UUIDs."""
    try:
        public_id = UUID(text)
        parse_task_uuid(public_id)
    except ValueError:
        return None
    return public_id


def task_of_group(client: "SyncClient", group: str, number: int | UUID) -> "TaskInfo":
    """A task by its number: the id of any task of the group names the group, the number does the rest.

    By its id it is found without a group (""); with one it must be a task of it.

    Raises:
        NotFound: the group has no such task.
    """
    if isinstance(number, UUID):
        task = client.task(number)
        if group and client.group(group).task_group_id != task.task_group_id:
            raise NotFound(f"{number} is no task of {group}")
        return task
    some = next(client.tasks(group), None)
    if some is None:
        raise NotFound(f"the task group {group} has no tasks")
    return client.task(task_uuid(parse_task_uuid(some.task_uuid)[0], number))


def _parse(text: str) -> tuple[str, int | UUID]:
    try:
        return "", UUID(text)
    except ValueError:
        group, task = split_target(text) if "/" in text else ("", None)
    if task is None:
        raise InvalidRequest(
            f"{text!r} is neither the number of a task nor a UUID; write GROUP/NUMBER",
            option="TASK",
        )
    return group, task
