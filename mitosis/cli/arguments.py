"""Arguments and options that several commands share, one type each."""

from typing import Annotated, Literal

import typer

from mitosis.cli.completion import group_names, groups_and_tasks
from mitosis.cli.references import check_reference

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Id, NAME or USERGROUP/NAME of the task group.",
        callback=check_reference,
        autocompletion=group_names,
    ),
]
TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP[/TASK]",
        help="A task group, or one of its tasks by number or UUID, as in render/17.",
        autocompletion=groups_and_tasks,
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        min=0, help="How many to show; 0 shows all. [default: 50; all with --json or --quiet]"
    ),
]
ProgressOption = Annotated[
    Literal["auto", "rich", "plain", "none"],
    typer.Option("--progress", help="How to show the progress."),
]
