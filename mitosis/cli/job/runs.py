"""`mitosis job runs | tasks | cancel`: the runs of jobs, the tasks of their steps, and their cancel."""

from typing import Annotated

import typer

from mitosis.cli.arguments import LimitOption
from mitosis.cli.context import Cli
from mitosis.cli.job.run_references import RunArgument, run_id_of
from mitosis.contracts.lifecycle import RunState, TaskState


def runs(
    cli: Cli,
    state: Annotated[
        list[RunState] | None, typer.Option(help="Only runs in this state; repeatable.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of jobs with this name.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="USERGROUP", help="Only runs of this user group.")
    ] = None,
    created_by: Annotated[
        str | None,
        typer.Option(metavar="USERNAME", help="Only runs that this user has started by hand."),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEDULE", help="Only runs of this schedule: NAME or USERGROUP/NAME."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only runs with this label; repeatable."),
    ] = None,
    limit: LimitOption = None,
) -> None:
    """List the runs of your user groups, the newest first."""
    from mitosis.cli.follow.display import now
    from mitosis.cli.job.run_view import runs_table
    from mitosis.cli.validation import named

    with cli.client() as client, named({"group_name": "--group"}):
        found = client.runs(
            state=state or None,
            job=job,
            group_name=group,
            created_by=created_by,
            schedule=schedule,
            label=label or None,
        )
        cli.output.table(runs_table(cli.take(found, limit), now()))


def tasks(
    cli: Cli,
    run: RunArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Name of a step.")],
    state: Annotated[TaskState | None, typer.Option(help="Only tasks in this state.")] = None,
    limit: LimitOption = None,
) -> None:
    """List the tasks of a step by index, with their results."""
    from mitosis.cli.job.run_view import tasks_table

    with cli.client() as client:
        found = client.step_tasks(run_id_of(client, run), step, state=state)
        cli.output.table(tasks_table(cli.take(found, limit)))


def cancel(
    cli: Cli,
    run: RunArgument,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reason, stored with the run.")
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time from SIGTERM to SIGKILL. [default: the task group's]"
        ),
    ] = None,
    skip_cleanup: Annotated[
        bool,
        typer.Option("--skip-cleanup", help="Cancel also the steps that follow others `always`."),
    ] = False,
) -> None:
    """Cancel a run: its unfinished tasks, and all steps but those that clean up."""
    from mitosis.cli.job.run_view import run_item
    from mitosis.cli.validation import duration, seconds, validated
    from mitosis.contracts.runs import CancelRun

    span = duration(grace, "--grace")
    given = {"reason": reason, "grace_seconds": seconds(grace, "--grace")}
    validated(CancelRun, given, {"reason": "--reason", "grace_seconds": "--grace"})
    with cli.client() as client:
        cancelled = client.cancel_run(
            run_id_of(client, run), reason=reason, grace=span, skip_cleanup=skip_cleanup
        )
    cli.output.item(run_item(cancelled))
