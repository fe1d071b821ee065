"""Arguments and options that several commands share, one type each."""

from datetime import datetime
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
AtOption = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"],
        help="Explain the last decision about hosts before this local time, made again on what it"
        " knew then. The last 500 decisions that changed something are kept.",
    ),
]
