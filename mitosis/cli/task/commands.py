"""`mitosis task …`: shows and cancels single tasks."""

from typing import Annotated
from uuid import UUID

import typer

from mitosis.cli import plain_app
from mitosis.cli.completion import group_names, groups_and_tasks
from mitosis.cli.context import Cli
from mitosis.cli.references import check_reference
from mitosis.cli.registration import register
from mitosis.cli.task import cancel
from mitosis.cli.task.find import split_target, task_of_group
from mitosis.cli.task.view import task_item
from mitosis.contracts.errors import InvalidRequest

app = plain_app()


@app.callback()
def task() -> None:
    """Look at single tasks, or cancel them."""


register(app, "cancel")(cancel.cancel)


@register(app, "show")
def show(
    cli: Cli,
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="GROUP/NUMBER or a UUID; with --group only the number.",
            autocompletion=groups_and_tasks,
        ),
    ],
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="The task group that the number belongs to.",
            autocompletion=group_names,
        ),
    ] = None,
) -> None:
    """Show one task: its command, how it ended, its output, its earlier failures."""
    if task.isascii() and task.isdigit():
        if group is None:
            raise InvalidRequest(
                f"name the task group of task {task}, as in: mitosis task show NAME/{task}",
                option="--group",
            )
        check_reference(group)
        with cli.client() as client:
            cli.output.item(task_item(task_of_group(client, group, int(task))))
        return
    named, wanted = _parse(task)
    with cli.client() as client:
        cli.output.item(task_item(task_of_group(client, named or group or "", wanted)))


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
