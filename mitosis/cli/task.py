"""`mitosis task …`: single tasks."""

from typing import Annotated
from uuid import UUID

import typer

from mitosis.cli import plain_app
from mitosis.cli.command import Cli, register
from mitosis.cli.task_view import task_item

app = plain_app()


@app.callback()
def task() -> None:
    """Single tasks."""


@register(app, "show")
def show(
    cli: Cli,
    task_id: Annotated[UUID, typer.Argument(metavar="UUID", help="Id of the task.")],
) -> None:
    """Show one task: what it runs, how it ended, its output, its earlier failures."""
    with cli.client() as client:
        cli.output.item(task_item(client.task(task_id)))
