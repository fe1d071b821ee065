"""The verbs of a task group: close, reopen, cancel, complete, delete."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from mitosis.cli.command import Cli, GroupArgument
from mitosis.cli.group_view import group_item

ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept with the group.")]
GraceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From SIGTERM to SIGKILL; the group's own when left out."),
]


def close(cli: Cli, group: GroupArgument, reason: ReasonOption = None) -> None:
    """Accept no more tasks; the group completes when its last task ends."""
    with cli.client() as client:
        cli.output.item(group_item(client.close(group, reason=reason)))


def reopen(cli: Cli, group: GroupArgument, reason: ReasonOption = None) -> None:
    """Accept tasks again: a closed group is open once more."""
    with cli.client() as client:
        cli.output.item(group_item(client.reopen(group, reason=reason)))


def cancel(
    cli: Cli,
    group: GroupArgument,
    reason: ReasonOption = None,
    let_running_finish: Annotated[
        bool, typer.Option("--let-running-finish", help="Do not kill tasks that run now.")
    ] = False,
    grace: GraceOption = None,
) -> None:
    """End the group: nothing more is started, and running tasks are ended with grace."""
    from mitosis.cli.validation import duration

    patience = duration(grace, "--grace")
    with cli.client() as client:
        cancelled = client.cancel(
            group,
            reason=reason,
            cancel_running_tasks=not let_running_finish,
            grace=patience,
        )
    cli.output.item(group_item(cancelled))


def complete(
    cli: Cli,
    group: GroupArgument,
    reason: ReasonOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Cancel unfinished tasks instead of waiting.")
    ] = False,
    grace: GraceOption = None,
) -> None:
    """Close the group, so that it completes; with --force at once."""
    from mitosis.cli.validation import duration

    patience = duration(grace, "--grace")
    with cli.client() as client:
        completed = client.complete(group, reason=reason, force=force, grace=patience)
    cli.output.item(group_item(completed))


def delete(cli: Cli, group: GroupArgument) -> None:
    """Delete a settled group with its tasks and results."""
    with cli.client() as client:
        client.delete_group(group)
    cli.output.note(f"deleted {group}")


COMMANDS: dict[str, Callable[..., Any]] = {
    "close": close,
    "reopen": reopen,
    "cancel": cancel,
    "complete": complete,
    "delete": delete,
}
