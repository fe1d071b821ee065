"""`mitosis worker …`: lists, shows and drains worker services."""

from typing import Annotated

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.worker.view import (
    history_table,
    named_tasks_table,
    worker_item,
    workers_table,
)
from mitosis.contracts.errors import InvalidRequest

app = plain_app()

OPTION_OF_FIELD = {"worker_id": "WORKER", "reason": "--reason"}
WorkerArgument = Annotated[str, typer.Argument(metavar="WORKER", help="Id of the worker service.")]


@app.callback(invoke_without_command=True)
def worker(context: typer.Context) -> None:
    """Look at worker services, which execute named tasks, and drain them.

    The control worker of a deployment is `mitosis control`.
    """
    if context.invoked_subcommand is None:
        raise InvalidRequest(
            "give a command, as in `mitosis worker list`; the control worker is now `mitosis control`"
        )


@register(app, "list")
def list_workers(cli: Cli, limit: LimitOption = None) -> None:
    """List worker services with their health."""
    with cli.client() as client:
        cli.output.table(workers_table(cli.take(client.workers(), limit)))


@register(app, "show")
def show(cli: Cli, worker_id: WorkerArgument) -> None:
    """Show one worker service and the named tasks that it supports."""
    from mitosis.cli.validation import named

    with named(OPTION_OF_FIELD), cli.client() as client:
        cli.output.item(worker_item(client.worker(worker_id)))


@register(app, "history")
def history(cli: Cli, worker_id: WorkerArgument, limit: LimitOption = None) -> None:
    """List the registrations of a worker service, the last one first, and why each ended."""
    from mitosis.cli.validation import named

    with named(OPTION_OF_FIELD), cli.client() as client:
        found = cli.take(client.worker_registrations(worker_id), limit)
    cli.output.table(history_table(found))


@register(app, "coverage")
def coverage(
    cli: Cli,
    single: Annotated[
        bool, typer.Option("--single", help="Only named tasks with a single worker service.")
    ] = False,
    limit: LimitOption = None,
) -> None:
    """List named tasks with the worker services that can execute them now."""
    with cli.client() as client:
        found = client.named_tasks(available="one" if single else "any")
        cli.output.table(named_tasks_table(cli.take(found, limit)))


@register(app, "drain")
def drain(
    cli: Cli,
    worker_id: WorkerArgument,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reason, shown with the worker service.")
    ] = None,
) -> None:
    """Give a worker service no tasks from now on, also after a restart.

    `mitosis worker resume` ends it.
    """
    from mitosis.cli.validation import named

    with named(OPTION_OF_FIELD), cli.client() as client:
        cli.output.item(worker_item(client.drain_worker(worker_id, reason=reason)))


@register(app, "resume")
def resume(cli: Cli, worker_id: WorkerArgument) -> None:
    """End the drain of a worker service."""
    from mitosis.cli.validation import named

    with named(OPTION_OF_FIELD), cli.client() as client:
        cli.output.item(worker_item(client.resume_worker(worker_id)))
