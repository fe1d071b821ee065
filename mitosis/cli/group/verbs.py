"""Commands on an existing task group: change, close, reopen, cancel, complete, delete."""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer

from mitosis.cli.arguments import GroupArgument
from mitosis.cli.context import Cli
from mitosis.cli.group.create import OPTION_OF_FIELD
from mitosis.cli.group.options import (
    LabelOption,
    PriorityOption,
    TagOption,
)
from mitosis.cli.group.view import group_item
from mitosis.cli.registration import FormerNames
from mitosis.cli.rendering import Item
from mitosis.contracts.errors import InvalidRequest

ReasonOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Reason, stored with the task group.")
]
GraceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time from SIGTERM to SIGKILL. [default: the task group's]"),
]
ChangedAutoCloseOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|never",
        help="Close after this long without a submission, as in 30m, or never.",
    ),
]
ChangedMaxHostsOption = Annotated[
    str | None,
    typer.Option(metavar="N|unlimited", help="Most hosts at the same time, or unlimited."),
    FormerNames(("--max-managers",)),
]
NO_LIMIT = {"auto_close_timeout": "never", "max_managers": "unlimited"}
"""The word that removes a limit, by its field."""


def change(
    cli: Cli,
    group: GroupArgument,
    tag: TagOption = None,
    label: LabelOption = None,
    priority: PriorityOption = None,
    auto_close: ChangedAutoCloseOption = None,
    max_hosts: ChangedMaxHostsOption = None,
) -> None:
    """Change a task group that has not ended; options that are left out change nothing.

    New tags and labels replace the present ones.
    """
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.http import TaskGroupUpdate

    given = {
        "tags": tag,
        "labels": label,
        "priority": priority,
        "auto_close_timeout": auto_close,
        "max_managers": _number(max_hosts),
    }
    values = {
        key: None if value == NO_LIMIT.get(key) else value
        for key, value in given.items()
        if value is not None and value != []
    }
    if not values:
        raise InvalidRequest(
            "give at least one change: " + ", ".join(OPTION_OF_FIELD[key] for key in given)
        )
    update = validated(TaskGroupUpdate, values, OPTION_OF_FIELD)
    with named(OPTION_OF_FIELD), cli.client() as client:
        cli.output.item(group_item(client.update_group(group, update)))


def _number(text: str | None) -> int | str | None:
    """Convert to a number where possible; validation reports other words."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def close(cli: Cli, group: GroupArgument, reason: ReasonOption = None) -> None:
    """Accept no more tasks; the task group completes when its last task ends."""
    with cli.client() as client:
        cli.output.item(group_item(client.close_group(group, reason=reason)))


def reopen(cli: Cli, group: GroupArgument, reason: ReasonOption = None) -> None:
    """Open a closed task group, so that it accepts tasks again."""
    with cli.client() as client:
        cli.output.item(group_item(client.reopen(group, reason=reason)))


def cancel(
    cli: Cli,
    group: GroupArgument,
    reason: ReasonOption = None,
    let_running_finish: Annotated[
        bool, typer.Option("--let-running-finish", help="Let tasks that run now finish.")
    ] = False,
    grace: GraceOption = None,
) -> None:
    """Cancel a task group: no more tasks start, and running tasks are ended with grace."""
    grace_period = _grace(grace)
    with cli.client() as client:
        cancelled = client.cancel(
            group,
            reason=reason,
            cancel_running_tasks=not let_running_finish,
            grace=grace_period,
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
    """Close a task group so that it completes; with --force it completes at once."""
    grace_period = _grace(grace)
    with cli.client() as client:
        completed = client.complete(group, reason=reason, force=force, grace=grace_period)
    cli.output.item(group_item(completed))


def _grace(text: str | None) -> timedelta | None:
    """Parse the time from SIGTERM to SIGKILL.

    Raises:
        InvalidRequest: it is not a duration, or too long.
    """
    from mitosis.cli.validation import duration, validated
    from mitosis.contracts.http import CancelBody

    span = duration(text, "--grace")
    if span is not None:
        values = {"grace_seconds": span.total_seconds()}
        validated(CancelBody, values, {"grace_seconds": "--grace"})
    return span


def delete(cli: Cli, group: GroupArgument) -> None:
    """Delete a settled task group with its tasks and results."""
    with cli.client() as client:
        client.delete_group(group)
    cli.output.item(Item(data={"deleted": group}, fields=[("deleted", group)], id=group))


COMMANDS: dict[str, Callable[..., Any]] = {
    "change": change,
    "close": close,
    "reopen": reopen,
    "cancel": cancel,
    "complete": complete,
    "delete": delete,
}
