"""`mitosis worker …`: runs the process of a worker service; lists, shows and drains worker services."""

from typing import Annotated

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.stack.options import DataDirOption
from mitosis.cli.worker import process
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
def worker(
    context: typer.Context,
    task: process.TaskOption = None,
    command: process.CommandOption = None,
    executor: process.ExecutorOption = None,
    module: process.ModuleOption = None,
    entry_points: process.EntryPointsOption = False,
    config: process.ConfigOption = None,
    worker_id: process.IdOption = None,
    slots: process.SlotsOption = None,
    configuration: process.ConfigurationOption = None,
    priority: process.PriorityOption = 100,
    max_concurrent: process.MaxConcurrentOption = None,
    group: process.GroupOption = None,
    tag: process.TagOption = None,
    label: process.LabelOption = None,
    state_dir: process.StateDirOption = None,
    data_dir: DataDirOption = None,
    take_over: process.TakeOverOption = False,
    now: process.NowOption = False,
    look_seconds: process.LookOption = 5.0,
) -> None:
    """Run a worker service, which executes named tasks, until SIGTERM; or look at them with a command.

    With --task it registers this process, claims tasks of task groups of the kind service, executes each in
    a slot and reports how it ended. SIGTERM ends it when what runs has ended; a second SIGTERM stops what
    runs and gives it back. The first start needs the token of a user, later ones use the service's own.
    Handlers are imported from the folder in which it is started, and commands start there.

    The control worker of a deployment is `mitosis control`.
    """
    if context.invoked_subcommand is not None:
        return
    if not (task or module or entry_points or config):
        raise InvalidRequest(
            "give --task, --module, --entry-points or --config to run a worker service, or a command, as in"
            " `mitosis worker list`; the control worker is now `mitosis control`"
        )
    process.run(
        process.ProcessOptions(
            task=task or (),
            command=command,
            executor=executor,
            modules=module or (),
            entry_points=entry_points,
            config=config,
            worker_id=worker_id,
            slots=slots,
            configuration=configuration,
            priority=priority,
            max_concurrent=max_concurrent,
            groups=group or (),
            tags=tag or (),
            labels=label or (),
            state_dir=state_dir,
            data_dir=data_dir,
            take_over=take_over,
            now=now,
            look_seconds=look_seconds,
        )
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
